// The picture of `deepencoder diff`: how well each row agrees, where it lies on the page.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "client/view_blocks.h"
#include "client/view_canvas.h"

namespace deepencoder::client {

// What gives a number of rows.
struct Arrangement {
  deepencoder::Mode mode;
  TileGrid tiles;
  bool operator==(const Arrangement&) const = default;
};
// All of them, the fewest tiles first; the base view alone is mode base. Some numbers over 2000
// have several.
std::vector<Arrangement> ArrangementsOf(int64_t rows);

// Colour of 1 - cosine on a logarithmic scale from dark (0: 10^low or less) to bright (1: 10^high).
struct HeatScale {
  int low = -8, high = 0;
  double Place(double cosine) const;  // 0..1; NaN is 1
  Colour Of(double cosine) const;
};
// The decades that hold all of the cosines.
HeatScale ScaleFor(const std::vector<double>& cosines);

// A panel a block, over the block's picture if it has one, with newline rows and the separator.
// `cosines`: one a row. `height`: of a panel, about, pixels.
Canvas DrawHeat(const std::string& title, const std::string& note, const std::vector<Block>& blocks,
                const std::vector<double>& cosines, int height);

}  // namespace deepencoder::client
