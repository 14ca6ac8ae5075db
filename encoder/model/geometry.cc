#include "encoder/model/geometry.h"

#include <cmath>
#include <limits>

#include "encoder/model/config.h"

namespace deepencoder {
namespace {

// In the order of Mode's values.
constexpr ModeSpec kModes[] = {
    {Mode::kTiny, "tiny", 512, 0, false},       {Mode::kSmall, "small", 640, 0, false},
    {Mode::kBase, "base", 1024, 0, true},       {Mode::kLarge, "large", 1280, 0, true},
    {Mode::kGundam, "gundam", 1024, 640, true},
};

}  // namespace

std::span<const ModeSpec> Modes() { return kModes; }

const ModeSpec& SpecOf(Mode mode) { return kModes[static_cast<size_t>(mode)]; }

std::optional<Mode> ParseMode(std::string_view name) {
  for (const ModeSpec& spec : kModes) {
    if (name == spec.name) return spec.mode;
  }
  return std::nullopt;
}

TileGrid ClosestTileGrid(int64_t width, int64_t height, int max_tiles, int tile_side) {
  const double aspect = static_cast<double>(width) / static_cast<double>(height);
  const double area = static_cast<double>(width) * static_cast<double>(height);
  const double half_tile = 0.5 * tile_side * tile_side;
  double best_difference = std::numeric_limits<double>::infinity();
  TileGrid best;
  // In order of the number of tiles; among equal numbers the order does not matter from 4 tiles on.
  for (int count = 2; count <= max_tiles; ++count) {
    for (int columns = 1; columns <= count; ++columns) {
      if (count % columns != 0) continue;
      const int rows = count / columns;
      const double difference = std::fabs(aspect - static_cast<double>(columns) / rows);
      // A tie goes to the larger grid if the image fills more than half of it. The comparison must
      // stay exact: midpoints such as 5:6 go the way the rounding of the doubles sends them.
      if (difference < best_difference ||
          (difference == best_difference && area > half_tile * count)) {
        best_difference = difference;
        best = {columns, rows};
      }
    }
  }
  return best;
}

TileGrid ChooseTileGrid(int64_t width, int64_t height, int max_tiles, int tile_side) {
  if (width <= tile_side && height <= tile_side) return {};
  return ClosestTileGrid(width, height, max_tiles, tile_side);
}

SequenceLayout LayoutOf(Mode mode, TileGrid tiles) {
  const ModeSpec& spec = SpecOf(mode);
  SequenceLayout layout;
  int row = 0;

  if (spec.tile_side > 0 && tiles.count() > 0) {
    const int lines = OutputGridOf(spec.tile_side);
    const int line_stride = lines * tiles.columns + 1;  // a mosaic line and its newline
    for (int tile_row = 0; tile_row < tiles.rows; ++tile_row) {
      for (int column = 0; column < tiles.columns; ++column) {
        const int first_row = tile_row * lines * line_stride + column * lines;
        layout.views.push_back({spec.tile_side, lines, first_row, line_stride});
      }
    }
    for (int line = 0; line < lines * tiles.rows; ++line) {
      row += line_stride;
      layout.newline_rows.push_back(row - 1);
    }
  }

  const int lines = OutputGridOf(spec.base_side);
  layout.views.push_back({spec.base_side, lines, row, lines + 1});
  for (int line = 0; line < lines; ++line) {
    row += lines + 1;
    layout.newline_rows.push_back(row - 1);
  }
  layout.separator_row = row;
  layout.rows = row + 1;
  return layout;
}

}  // namespace deepencoder
