// What host and device share of the Hopper kernel for dense layers.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>

#include "encoder/base/dtype.h"
#include "kernels/linear.h"

namespace deepencoder::kernels::gemm_sm90 {

inline constexpr int kTileRows = 128;  // two consumer warpgroups of 64
inline constexpr int kTileK = 64;      // elements of k a stage: one 128-byte row
inline constexpr int kConsumers = 2;
inline constexpr int kThreads = (kConsumers + 1) * 128;
inline constexpr int kChunkRows = 16;  // a warp turns 16 rows of y, 128 bytes of each, at a time
inline constexpr int kChunkBytes = 128;

// A tile of y is 128 x columns; `cluster` blocks with tiles below one another share each tile of W.
struct Tiling {
  int columns;
  int cluster;
  int stages;
  int boxes;  // of a consumer warp

  constexpr size_t a_bytes() const { return kTileRows * kTileK * 2; }
  constexpr size_t b_bytes() const { return static_cast<size_t>(columns) * kTileK * 2; }
  // Stages, boxes, barriers, and what aligning the start to 1024 bytes may take.
  constexpr size_t shared_bytes() const {
    return stages * (a_bytes() + b_bytes()) + kConsumers * 4 * boxes * kChunkRows * kChunkBytes +
           2 * 8 * stages + 1024;
  }
};

inline constexpr Tiling kTilings[] = {
    {256, 2, 4, 2}, {256, 1, 4, 2}, {192, 2, 5, 1}, {192, 1, 5, 1}, {128, 2, 6, 2}, {128, 1, 6, 2},
};
inline constexpr int kTilingCount = sizeof(kTilings) / sizeof(kTilings[0]);
inline constexpr size_t kMaxSharedBytes = 227 * 1024;
static_assert(kTilings[0].shared_bytes() <= kMaxSharedBytes);
static_assert(kTilings[2].shared_bytes() <= kMaxSharedBytes);
static_assert(kTilings[4].shared_bytes() <= kMaxSharedBytes);

struct Params {
  const void* bias;      // may be null
  const void* residual;  // read by kernels that add one
  int64_t ldr;
  void* y;
  int64_t ldy;
  int rows;  // of a group
  int n;
  int k_steps;        // of both operands
  int first_k_steps;  // of x
  int second_k;       // column of W at which x2 begins
  int row_tiles;      // of a group, in clusters of tiles
  int column_tiles;
  int tiles;  // row_tiles * column_tiles * groups
};

// The kernel for a tiling, or null if there is none: an activation goes with y in the model's type and
// without a residual. Its arguments are three CUtensorMap (x, x2, W) and Params.
const void* FindKernelBf16(int tiling, DType y_type, Epilogue epilogue, bool adds_residual);
const void* FindKernelFp16(int tiling, DType y_type, Epilogue epilogue, bool adds_residual);

}  // namespace deepencoder::kernels::gemm_sm90
