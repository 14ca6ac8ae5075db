#include "encoder/model/geometry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "encoder/model/config.h"
#include "encoder/weights/json.h"

namespace deepencoder {
namespace {

constexpr int kTileSide = 640;

std::string Text(TileGrid grid) {
  return std::to_string(grid.columns) + "x" + std::to_string(grid.rows);
}

TEST(ConfigTest, GridsAndGlobalBlocks) {
  const ModelConfig config;
  for (int block = 0; block < config.sam_depth; ++block) {
    EXPECT_EQ(config.IsGlobal(block), block % 3 == 2) << block;
  }
  EXPECT_EQ(GridOf(1024), 64);
  EXPECT_EQ(OutputGridOf(1280), 20);
  for (const ModeSpec& spec : Modes()) EXPECT_TRUE(IsViewSide(spec.base_side)) << spec.name;
  EXPECT_FALSE(IsViewSide(0));
  EXPECT_FALSE(IsViewSide(513));
}

TEST(ModesTest, NamesAndOrder) {
  ASSERT_EQ(Modes().size(), 5u);
  for (const ModeSpec& spec : Modes()) {
    EXPECT_EQ(ParseMode(spec.name), spec.mode);
    EXPECT_EQ(&SpecOf(spec.mode), &spec);
    EXPECT_EQ(spec.letterbox, spec.base_side > kTileSide) << spec.name;
  }
  EXPECT_EQ(ParseMode("Gundam"), std::nullopt);
  EXPECT_EQ(ParseMode(""), std::nullopt);
  EXPECT_EQ(SpecOf(Mode::kGundam).tile_side, kTileSide);
}

// Made by the reference's own code: width, height, grid for at most 6 tiles, grid for at most 9.
TEST(TileGridTest, EveryRowOfTheConformanceTable) {
  const auto table = ReadJsonFile(DEEPENCODER_TEST_DATA "/tile_grids.json", 1 << 20);
  ASSERT_TRUE(table.ok()) << table.status();
  const auto rows = FindJson(*table, {"rows"});
  ASSERT_TRUE(rows.ok()) << rows.status();
  ASSERT_EQ((*rows)->list_value().values_size(), 894);
  for (const JsonValue& value : (*rows)->list_value().values()) {
    const auto row = JsonIntegers(value, 1, 1'000'000, 6);
    ASSERT_TRUE(row.ok()) << row.status();
    const auto& r = *row;
    const TileGrid six = ClosestTileGrid(r[0], r[1], 6, kTileSide);
    const TileGrid nine = ClosestTileGrid(r[0], r[1], 9, kTileSide);
    EXPECT_EQ(Text(six), Text({static_cast<int>(r[2]), static_cast<int>(r[3])}))
        << r[0] << " x " << r[1] << ", at most 6";
    EXPECT_EQ(Text(nine), Text({static_cast<int>(r[4]), static_cast<int>(r[5])}))
        << r[0] << " x " << r[1] << ", at most 9";
    const bool fits = r[0] <= kTileSide && r[1] <= kTileSide;
    EXPECT_EQ(ChooseTileGrid(r[0], r[1], 6, kTileSide), fits ? TileGrid() : six);
  }
}

TEST(TileGridTest, EdgesOfTheRule) {
  // Both sides within a tile: no tiles, whatever the shape.
  EXPECT_EQ(ChooseTileGrid(640, 640, 6, kTileSide), TileGrid());
  EXPECT_EQ(ChooseTileGrid(1, 1, 6, kTileSide).count(), 0);
  EXPECT_EQ(ChooseTileGrid(641, 1, 6, kTileSide), (TileGrid{6, 1}));
  EXPECT_EQ(ChooseTileGrid(641, 1, 9, kTileSide), (TileGrid{9, 1}));
  EXPECT_EQ(ChooseTileGrid(1, 641, 6, kTileSide), (TileGrid{1, 6}));
  // Double rounding decides the exact midpoint 5:6.
  EXPECT_EQ(ChooseTileGrid(2500, 3000, 6, kTileSide), (TileGrid{2, 2}));
  // The tie between 2 x 2 and 3 x 3 flips just above half the area of 9 tiles, 1,843,200 pixels.
  EXPECT_EQ(ChooseTileGrid(1357, 1357, 9, kTileSide), (TileGrid{2, 2}));
  EXPECT_EQ(ChooseTileGrid(1358, 1358, 9, kTileSide), (TileGrid{3, 3}));
  EXPECT_EQ(ChooseTileGrid(2000, 1000, 9, kTileSide), (TileGrid{4, 2}));
  // An area past 2^32 must not overflow.
  EXPECT_EQ(ChooseTileGrid(100'000, 100'000, 9, kTileSide), (TileGrid{3, 3}));
  EXPECT_LE(ChooseTileGrid(65'000, 1, kMaxMaxTiles, kTileSide).count(), kMaxMaxTiles);
}

TEST(LayoutTest, TokensOfEveryMode) {
  EXPECT_EQ(LayoutOf(Mode::kTiny, {}).rows, 73);
  EXPECT_EQ(LayoutOf(Mode::kSmall, {}).rows, 111);
  EXPECT_EQ(LayoutOf(Mode::kBase, {}).rows, 273);
  EXPECT_EQ(LayoutOf(Mode::kLarge, {}).rows, 421);
  const struct {
    TileGrid tiles;
    int rows;
  } gundam[] = {{{1, 1}, 273},  {{1, 2}, 493},  {{2, 1}, 483},  {{1, 3}, 603},  {{3, 1}, 583},
                {{2, 2}, 693},  {{2, 3}, 903},  {{3, 2}, 893},  {{1, 6}, 933},  {{6, 1}, 883},
                {{4, 2}, 1093}, {{2, 4}, 1113}, {{3, 3}, 1203}, {{1, 9}, 1263}, {{9, 1}, 1183}};
  for (const auto& [tiles, rows] : gundam) {
    EXPECT_EQ(LayoutOf(Mode::kGundam, tiles).rows, rows) << Text(tiles);
  }
}

// Every row of the reply has exactly one source.
TEST(LayoutTest, RowsAreCoveredOnce) {
  for (const ModeSpec& spec : Modes()) {
    for (int columns = 1; columns <= 6; ++columns) {
      for (int rows = 1; rows <= (spec.tile_side > 0 ? 6 : 1); ++rows) {
        const TileGrid tiles{columns, rows};
        const SequenceLayout layout = LayoutOf(spec.mode, tiles);
        std::vector<int> sources(layout.rows, 0);
        for (const ViewRows& view : layout.views) {
          EXPECT_EQ(view.lines, view.side / 64);
          for (int y = 0; y < view.lines; ++y) {
            for (int x = 0; x < view.lines; ++x) {
              ++sources.at(view.first_row + y * view.line_stride + x);
            }
          }
        }
        for (const int row : layout.newline_rows) ++sources.at(row);
        ++sources.at(layout.separator_row);
        EXPECT_THAT(sources, testing::Each(1)) << spec.name << " " << Text(tiles);
        EXPECT_TRUE(std::is_sorted(layout.newline_rows.begin(), layout.newline_rows.end()));
        const int tile_views = spec.tile_side > 0 ? tiles.count() : 0;
        ASSERT_EQ(layout.views.size(), static_cast<size_t>(tile_views + 1));
        EXPECT_EQ(layout.views.back().side, spec.base_side);
        EXPECT_EQ(layout.separator_row, layout.rows - 1);
      }
    }
  }
}

TEST(LayoutTest, MosaicOfThreeByTwo) {
  const SequenceLayout layout = LayoutOf(Mode::kGundam, {3, 2});
  ASSERT_EQ(layout.views.size(), 7u);
  const int line = 3 * 10 + 1;
  for (int tile = 0; tile < 6; ++tile) {
    EXPECT_EQ(layout.views[tile].first_row, tile / 3 * 10 * line + tile % 3 * 10) << tile;
    EXPECT_EQ(layout.views[tile].line_stride, line);
    EXPECT_EQ(layout.views[tile].side, kTileSide);
  }
  EXPECT_EQ(layout.views[6].first_row, 20 * line);
  EXPECT_EQ(layout.views[6].line_stride, 17);
  ASSERT_EQ(layout.newline_rows.size(), 20u + 16u);
  EXPECT_EQ(layout.newline_rows[0], 30);
  EXPECT_EQ(layout.newline_rows[19], 20 * line - 1);
  EXPECT_EQ(layout.newline_rows[20], 20 * line + 16);
}

}  // namespace
}  // namespace deepencoder
