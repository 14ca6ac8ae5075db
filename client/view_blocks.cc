#include "client/view_blocks.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "encoder/model/config.h"

namespace deepencoder::client {
namespace {

constexpr size_t kChannels = 3;

// `count` views side by side in rows of `columns`.
cv::Mat Mosaic(const View* views, int columns, int count) {
  const int side = views->side;
  cv::Mat mosaic(count / columns * side, columns * side, CV_8UC3);
  const size_t row_bytes = static_cast<size_t>(side) * kChannels;
  for (int i = 0; i < count; ++i) {
    for (int y = 0; y < side; ++y) {
      std::memcpy(mosaic.ptr(i / columns * side + y, i % columns * side),
                  views[i].rgb.data() + static_cast<size_t>(y) * row_bytes, row_bytes);
    }
  }
  return mosaic;
}

}  // namespace

std::vector<Block> BlocksOf(deepencoder::Mode mode, TileGrid tiles,
                            const std::vector<View>& views) {
  const ModeSpec& spec = SpecOf(mode);
  std::vector<Block> blocks;
  const int count = spec.tile_side > 0 ? tiles.count() : 0;
  int row = 0;
  if (count > 0) {
    const int lines = OutputGridOf(spec.tile_side);
    Block local{"local", kLocalColour, 0, lines * tiles.rows, lines * tiles.columns, tiles, {}};
    if (!views.empty()) local.picture = Mosaic(views.data(), tiles.columns, count);
    row = local.rows();
    blocks.push_back(std::move(local));
  }
  const int lines = OutputGridOf(spec.base_side);
  Block global{"global", kGlobalColour, row, lines, lines, {}, {}};
  if (!views.empty()) global.picture = Mosaic(views.data() + count, 1, 1);
  blocks.push_back(std::move(global));
  return blocks;
}

std::string PlaceOf(const std::vector<Block>& blocks, int row) {
  for (const Block& block : blocks) {
    if (row >= block.first_row + block.rows()) continue;
    const int line = (row - block.first_row) / (block.columns + 1);
    const int column = (row - block.first_row) % (block.columns + 1);
    const bool newline = column == block.columns;
    std::string place = block.name;
    if (block.tiles.count() > 0 && !newline) {
      const int tile = line / (block.lines / block.tiles.rows) * block.tiles.columns +
                       column / (block.columns / block.tiles.columns);
      place = absl::StrCat("tile ", tile + 1);
    }
    return newline ? absl::StrCat(place, ", line ", line, ", newline")
                   : absl::StrCat(place, ", line ", line, ", token ", column);
  }
  return "view separator";
}

int CellSide(const Block& block, int height) {
  constexpr int kLeast = 4;
  return std::max(kLeast, std::min(height / block.lines, height * 5 / 4 / block.columns));
}

void WriteRowNumbers(Canvas& canvas, const BlockPanel& panel) {
  constexpr int kPitch = 18;  // pixels between two numbers at least
  const int step = (kPitch + panel.cell - 1) / panel.cell;
  for (int line = 0; line < panel.block->lines; line += step) {
    canvas.WriteRight(panel.x - 8, panel.Cell(line, 0).y + panel.cell / 2,
                      std::to_string(panel.block->RowOf(line, 0)), {13}, kNoteColour);
  }
}

}  // namespace deepencoder::client
