// The hand-written kernels: plain functions of plain pointers, one table for each instruction set.
//
// vector_layer_norm.cc and vector_attention.cc are compiled once for each Isa, amx_attention.cc for
// AMX. Those files, and this header, include no C++ library: an inline function of it compiled
// there could be the copy that the linker keeps for the whole program, and would fault on a lesser
// CPU.
#pragma once

#include <stddef.h>  // NOLINT(modernize-deprecated-headers): no C++ library here, see above

namespace deepencoder::cpu {

// out[r][:] = (x - mean) / sqrt(variance + eps) * weight + bias over each row of `width` (a
// multiple of 16) elements, variance being the biased one. `out` holds floats, or bf16 if
// `to_bf16`; floats may be written in place.
struct LayerNormArgs {
  const float* x;       // [rows][width]
  const float* weight;  // [width]
  const float* bias;    // [width]
  float eps;
  int width;
  int rows;
  bool to_bf16;
  void* out;  // [rows][width]
};

// Which keys a query sees. Keys form a grid; with relative positions it is square, and
//   score(q, k) = q.k / 8 + q.Rh[yq - yk + L - 1] + q.Rw[xq - xk + L - 1],   L = columns = rows
// CLIP has none: one row of all keys.
struct AttentionShape {
  int rows;  // of the key grid
  int columns;
  int width;  // heads * 64: a token's row of qkv is [q | k | v], each `width` elements, head-major
  bool relative;
};

// Relative-position tables in a kernel's own layout (AttentionKernel::pack_rel_pos).
struct RelPosPair {
  const void* h;
  const void* w;
};

// Up to AttentionKernel::query_tile queries that see the same keys.
struct QueryTile {
  int count;
  const void* const* qkv;  // [count] rows of qkv
  void* const* out;        // [count] rows of `width` elements; one head of each is written
  const short* y;          // [count] place in the key grid; null without relative positions
  const short* x;
};

// Attention of one head with the online softmax: scores exist for one tile of queries and one tile
// of keys (a few rows of the grid) at a time. Elements are floats or bf16; scores, softmax and sums
// are floats.
struct AttentionKernel {
  int query_tile;
  // Keys and values of a head are packed a key tile at a time into packed_bytes bytes, 64-byte
  // aligned.
  int (*key_tiles)(const AttentionShape& shape);
  size_t (*packed_bytes)(const AttentionShape& shape);
  // `qkv` has a row for every key, grid row by grid row. Tiles may be packed concurrently.
  void (*pack_key_tile)(const AttentionShape& shape, const void* const* qkv, int head, int tile,
                        void* packed);
  // The table [2*length - 1][64] of a grid of `length`.
  size_t (*rel_pos_bytes)(int length);
  void (*pack_rel_pos)(const float* table, int length, void* packed);
  // `scratch` is a thread's own, 64-byte aligned.
  size_t (*scratch_bytes)(const AttentionShape& shape);
  void (*attend)(const AttentionShape& shape, int head, const QueryTile& queries,
                 const void* packed, const RelPosPair& tables, void* scratch);
};

struct VectorKernels {
  void (*layer_norm)(const LayerNormArgs& args);
  AttentionKernel attention;  // of floats
};

namespace baseline {
extern const VectorKernels kKernels;
}
#if defined(__x86_64__)
namespace avx2 {
extern const VectorKernels kKernels;
}
namespace avx512 {
extern const VectorKernels kKernels;
}
namespace amx {
extern const AttentionKernel kAttention;  // of bf16
}
#endif

}  // namespace deepencoder::cpu
