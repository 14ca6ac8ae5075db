// The reply's sequence as blocks to draw: lines of tokens, as the language model reads them.
#pragma once

#include <opencv2/core.hpp>
#include <string>
#include <vector>

#include "client/view_canvas.h"
#include "encoder/image/views.h"
#include "encoder/model/geometry.h"

namespace deepencoder::client {

inline constexpr Colour kLocalColour{0, 114, 178}, kGlobalColour{0, 158, 115},
    kNewlineColour{230, 159, 0}, kSeparatorColour{170, 51, 119}, kTextColour{40, 40, 46},
    kNoteColour{120, 120, 128}, kPaperColour{255, 255, 255};

// The tiles' mosaic or the global view: `lines` lines of `columns` tokens, each followed by a
// newline row.
struct Block {
  std::string name;  // "local" or "global"
  Colour colour;
  int first_row = 0, lines = 0, columns = 0;
  TileGrid tiles;   // of the mosaic; 1 x 1 for the global view
  cv::Mat picture;  // the pixels the tokens are made of; empty if they are not known

  int rows() const { return lines * (columns + 1); }
  int RowOf(int line, int column) const { return first_row + line * (columns + 1) + column; }
};

// In order of the sequence. `views`: none, or all of the layout's, in its order.
std::vector<Block> BlocksOf(deepencoder::Mode mode, TileGrid tiles, const std::vector<View>& views);

// Where a row of the sequence lies, in words: "tile 2, line 3, token 14"; lines and tokens count
// from 0 within the block, tiles from 1.
std::string PlaceOf(const std::vector<Block>& blocks, int row);

// A block on a canvas: a cell for each of its rows, newlines in a column of their own at the right.
struct BlockPanel {
  const Block* block;
  int x, y;  // of the first cell
  int cell;  // side of a cell, pixels

  static constexpr int kGap = 6;  // before the newlines
  Box Cell(int line, int column) const { return {x + column * cell, y + line * cell, cell, cell}; }
  Box Newline(int line) const {
    return {x + block->columns * cell + kGap, y + line * cell, cell, cell};
  }
  Box Tokens() const { return {x, y, block->columns * cell, block->lines * cell}; }
  int width() const { return (block->columns + 1) * cell + kGap; }
  int height() const { return block->lines * cell; }
};

// A cell's side so that the block is about `height` pixels high and not much wider.
int CellSide(const Block& block, int height);
// The number of each line's first row, left of it, where there is room.
void WriteRowNumbers(Canvas& canvas, const BlockPanel& panel);
// Room for those.
inline constexpr int kRowNumberWidth = 44;

}  // namespace deepencoder::client
