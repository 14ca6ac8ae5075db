// Position tables of other grids than the stored ones, computed once at load in double precision.
// Callers round the result to the compute type (never in fp32). Standard library only.
#pragma once

#include <vector>

namespace deepencoder {

// [from*from][width] -> [to*to][width]: bicubic, a = -0.5, antialiased, align_corners false, which
// is Pillow's filter without its 8-bit rounding and PyTorch's interpolate(antialias=True).
std::vector<float> ResizePositions(const float* table, int from, int to, int width);

// [from][width] -> [to][width]: linear, align_corners false, no antialiasing (SAM's rel-pos
// tables).
std::vector<float> ResizeRelPos(const float* table, int from, int to, int width);

}  // namespace deepencoder
