// Modes, tile grids and the layout of the reply's rows. Standard library only.
//
// A reply is [local block][global block][view separator]:
//   global block  c lines of c rows, each followed by image_newline             c = side / 64
//   local block   the tiles as one mosaic of columns x rows: 10*rows lines of 10*columns rows, each
//                 followed by image_newline; absent without tiles
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace deepencoder {

enum class Mode : uint8_t { kTiny = 0, kSmall = 1, kBase = 2, kLarge = 3, kGundam = 4 };

struct ModeSpec {
  Mode mode;
  std::string_view name;
  int base_side;   // side of the global view, pixels
  int tile_side;   // side of a tile; 0: the mode has no tiles
  bool letterbox;  // global view keeps the aspect ratio and is padded; false: stretched
};

std::span<const ModeSpec> Modes();
const ModeSpec& SpecOf(Mode mode);
std::optional<Mode> ParseMode(std::string_view name);

inline constexpr int kMinMaxTiles = 4, kDefaultMaxTiles = 6, kMaxMaxTiles = 32;

struct TileGrid {
  int columns = 1, rows = 1;  // 1 x 1: no tiles
  int count() const { return columns * rows > 1 ? columns * rows : 0; }
  bool operator==(const TileGrid&) const = default;
};

// The grid of 2 to `max_tiles` tiles whose columns/rows is closest to width/height. All in IEEE
// double with exact comparison, as the reference has it. max_tiles >= kMinMaxTiles.
TileGrid ClosestTileGrid(int64_t width, int64_t height, int max_tiles, int tile_side);

// The grid an image gets: (1, 1) if both sides fit in one tile, else the closest.
TileGrid ChooseTileGrid(int64_t width, int64_t height, int max_tiles, int tile_side);

// Where the rows of one view go. Line y of the view is rows [first_row + y*line_stride, +lines).
struct ViewRows {
  int side;   // of the view, pixels
  int lines;  // c: lines, and rows a line
  int first_row;
  int line_stride;  // rows
};

struct SequenceLayout {
  std::vector<ViewRows> views;    // tiles row by row, then the global view
  std::vector<int> newline_rows;  // ascending
  int separator_row = 0;
  int rows = 0;  // T
};

SequenceLayout LayoutOf(Mode mode, TileGrid tiles);

}  // namespace deepencoder
