// What host and device share of the Hopper kernel for dense layers.
#pragma once

#include <cuda.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>

#include "encoder/base/dtype.h"
#include "kernels/linear.h"

namespace deepencoder::kernels::gemm_sm90 {

inline constexpr int kTileK = 64;        // elements of k a stage: one 128-byte row
inline constexpr int kProductRows = 64;  // of a product of a warpgroup (wgmma)
inline constexpr int kChunkRows = 16;    // a warp turns 16 rows of y, 128 bytes of each, at a time
inline constexpr int kChunkBytes = 128;

// A tile of y is rows x columns; `cluster` blocks with tiles below one another share each tile of W.
//
// Together: each consumer warpgroup computes kProductRows rows of every tile. In turns: there are two consumers, and
// each computes every other tile alone; while one is in its epilogue the other has the matrix units.
enum class Consumers : unsigned char { kTogether, kInTurns };

struct Tiling {
  int rows;
  int columns;
  int cluster;
  int stages;
  int boxes;  // of a consumer warp
  Consumers mode = Consumers::kTogether;

  constexpr bool in_turns() const { return mode == Consumers::kInTurns; }
  constexpr int consumers() const { return in_turns() ? 2 : rows / kProductRows; }
  // Consumers that read each stage, and products of kProductRows rows that each of them makes of it.
  constexpr int readers() const { return in_turns() ? 1 : consumers(); }
  constexpr int products() const { return in_turns() ? rows / kProductRows : 1; }
  constexpr int threads() const { return (consumers() + 1) * 128; }
  constexpr size_t a_bytes() const { return static_cast<size_t>(rows) * kTileK * 2; }
  constexpr size_t b_bytes() const { return static_cast<size_t>(columns) * kTileK * 2; }
  // Stages, boxes, barriers, and what aligning the start to 1024 bytes may take.
  constexpr size_t shared_bytes() const {
    return stages * (a_bytes() + b_bytes()) + consumers() * 4 * boxes * kChunkRows * kChunkBytes +
           8 * (2 * stages + 2) + 1024;
  }
};

// The lower tiles are for products with few rows (CLIP of one image), which the others spread over few blocks.
inline constexpr Tiling kTilings[] = {
    {64, 64, 1, 8, 2},
    {64, 64, 2, 8, 2},
    {64, 128, 1, 8, 2},
    {64, 128, 2, 8, 2},
    {64, 192, 1, 6, 2},
    {128, 256, 2, 4, 2},
    {128, 256, 1, 4, 2},
    {128, 192, 2, 5, 1},
    {128, 192, 1, 5, 1},
    {128, 128, 2, 6, 2},
    {128, 128, 1, 6, 2},
    {128, 128, 2, 6, 1, Consumers::kInTurns},
    {128, 128, 1, 6, 1, Consumers::kInTurns},
    {64, 128, 1, 6, 2, Consumers::kInTurns},
};
inline constexpr int kTilingCount = sizeof(kTilings) / sizeof(kTilings[0]);
inline constexpr size_t kMaxSharedBytes = 227 * 1024;
static_assert(std::all_of(std::begin(kTilings), std::end(kTilings), [](const Tiling& tiling) {
  return tiling.shared_bytes() <= kMaxSharedBytes && tiling.rows % kProductRows == 0;
}));

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
  int tiles;        // row_tiles * column_tiles * groups
  int early_steps;  // whose weights are loaded before the kernel waits for its input
};

// The kernel for a tiling, or null if there is none: an activation goes with y in the model's type and
// without a residual. Its arguments are three CUtensorMap (x, x2, W) and Params.
const void* FindKernelBf16(int tiling, DType y_type, Epilogue epilogue, bool adds_residual);
const void* FindKernelFp16(int tiling, DType y_type, Epilogue epilogue, bool adds_residual);

}  // namespace deepencoder::kernels::gemm_sm90
