// Pillow's bicubic resize of RGB8, to the bit: separable, horizontal first with 8-bit rows in between,
// weights in fixed point; an axis that keeps its size is left alone.
//
// Pillow itself resizes vertically first where the image is over 100 times as tall as wide (12), or where
// that is cheaper (13), and then differs by a few levels; the reference's order is kept here always.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "encoder/image/image.h"
#include "encoder/image/resample_kernel.h"

namespace deepencoder {

// Rows of the result from the top down, each [width][3], valid during the call only.
using RowSink = std::function<void(int y, const uint8_t* row)>;

// width, height >= 1. Memory besides the image: a few rows (as many as one output row is made of), never
// the whole result.
void ResizeBicubic(const RgbImage& image, int width, int height, const RowSink& sink);
// As above, with a kernel of ResampleKernels() of the caller's choice.
void ResizeBicubic(const RgbImage& image, int width, int height, const ResampleKernel& kernel,
                   const RowSink& sink);

}  // namespace deepencoder
