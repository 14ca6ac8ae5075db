// The Hopper kernel of global_attention.h: what is where, and how the work is cut.
//
// Equations, query i = (yi, xi), key j = (yj, xj), in base 2 against a reference m_i:
//   e(i,j) = log2(e) (q_i.k_j / 8 + rel_h(i, yj) + rel_w(i, xj)) - m_i
//   out_i  = sum_j 2^e(i,j) v_j / sum_j 2^e(i,j)
//
// The bias costs one addition a score. A key tile holds whole grid rows, so along the key loop a
// thread meets the same rel_w values in the same accumulator positions: they stay in registers.
// rel_h is one number a query row and grid row. Each score accumulator starts from rel_w + (rel_h -
// m), q is scaled by log2(e)/8, and the matrix unit adds q.k: what comes out is e(i,j), ready for
// the exponential. Both terms come from q (not scaled) times the tables in a prologue and never
// touch global memory.
//
// Quick and careful. The quick loop never looks for a larger score: m_i is the largest score of row
// i in the first key tile, the one the block's first query lies in, where scores tend to be
// largest, plus a headroom. If some row's sum passes a limit below which nothing in it can have
// overflowed, the block repeats the item with the careful loop, whose m_i follows the largest
// score. See global_attention_sm90_verdict.cuh.
//
// A block: `groups` consumer warpgroups of 64 query rows each and a producer warpgroup of which one
// thread works (the rest exists to lend its registers). Blocks are persistent: item = (batch, head,
// query tile).
#pragma once

#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#include "kernels/global_attention.h"

namespace deepencoder::kernels::hopper_attention {

inline constexpr int kHead = kGlobalAttentionHeadSize;
inline constexpr float kLog2e = 1.4426950408889634f;

// T       __nv_bfloat16 or __half
// grid    g, of g x g tokens
// keys    keys a tile: whole grid rows, a multiple of 16
// groups  consumer warpgroups
// stages  tiles (keys and values) in flight; even, divides the number of tiles:
//         the key loop is unrolled by it
// overlap value products may go on into the next tile's step (quick loop): fewer waits, more
// registers
template <typename T, int grid_, int keys_, int groups_, int stages_, bool overlap_>
struct Plan {
  using Type = T;
  static constexpr int grid = grid_, keys = keys_, groups = groups_, stages = stages_;
  static constexpr bool overlap = overlap_;
  static constexpr int tokens = grid * grid;
  static constexpr int rows = 64 * groups;                        // query rows a block
  static constexpr int query_tiles = (tokens + rows - 1) / rows;  // a head
  static constexpr int key_tiles = tokens / keys;
  static constexpr int grid_rows = keys / grid;         // of a key tile
  static constexpr bool group_in_row = grid % 64 == 0;  // a group's queries lie in one grid row
  static constexpr int threads = 128 * groups + 128;
  static constexpr int consumer_registers = groups == 2 ? 240 : 160;
  static constexpr int producer_registers = groups == 2 ? 24 : 32;

  // The quick loop's range. p = 2^e is rounded to T, so it must stay below T's largest number; a
  // sum below `limit` says that every p did. bf16 has fp32's exponents: 2^64 leaves as much for the
  // values. In fp16 the largest p of the first tile is 2^-headroom, so that later ones may be 2^23
  // times as large (scores 16 larger). What that costs below: p under 2^-14 are rounded to
  // multiples of 2^-24. Even if all of 6400 keys but one are such, their errors add up to about
  // 2^-20 against a sum of 2^-headroom or more: less than rounding to fp16 does. Where rel_h alone
  // says that later scores will be more than `reach` octaves larger, the reference is raised by the
  // rest; a sum below `least` says that this was wrong.
  static constexpr bool is_half = std::is_same_v<T, __half>;
  static constexpr float headroom = is_half ? 8.f : 0.f;
  static constexpr float reach = 12.f;
  static constexpr float limit = is_half ? 65504.f : 18446744073709551616.f;
  static constexpr float least = is_half ? 0x1p-9f : 0.f;

  // Shared memory, bytes.
  static constexpr int tile_bytes = keys * 128;
  static constexpr int query_bytes = 64 * 128;
  static constexpr int table_bytes = 2 * grid * 128;
  static constexpr int scratch_stride = grid + 4;  // floats; see ScratchAt
  static constexpr int scratch_bytes = (16 * scratch_stride * 4 + 1023) / 1024 * 1024;  // a warp
  static constexpr int k_at = 0;
  static constexpr int v_at = k_at + stages * tile_bytes;
  static constexpr int v_last_at = v_at + stages * tile_bytes;
  static constexpr int q_at = v_last_at + tile_bytes;
  static constexpr int tables_at = q_at + groups * query_bytes;
  static constexpr int scratch_at = tables_at + 2 * table_bytes;
  static constexpr int barriers_at = scratch_at + groups * 4 * scratch_bytes;
  static constexpr int shared_bytes = barriers_at + 256 + 1024;  // 1024: alignment

  // Where element j of a row of bias terms lies in the scratch: even ones first. With rows an odd
  // multiple of 4 floats apart, a warp's skewed stores and its reads then meet few bank conflicts.
  static constexpr __host__ __device__ int ScratchAt(unsigned j) {
    return j / 2 + j % 2 * (grid / 2);
  }
  static_assert(scratch_stride % 8 == 4);

  static_assert(tokens % 64 == 0 && tokens % keys == 0 && keys % grid == 0 && keys % 16 == 0 &&
                keys <= 256);
  static_assert(key_tiles % stages == 0 && stages % 2 == 0 && stages > 2);
  static_assert(tile_bytes % 1024 == 0 && table_bytes % 1024 == 0 && scratch_bytes >= 16 * 128);
  static_assert(shared_bytes <= 227 * 1024);
};

// full: filled by the copy engine; empty: read by every consumer warp (4 a group). Step j's stage
// holds keys of tile j and values of tile j-1; the last tile's values have a place of their own.
template <class P>
struct Shared {
  uint64_t full[P::stages], empty[P::stages];
  uint64_t q_full[P::groups], q_empty[P::groups];
  uint64_t tables_full;
  uint64_t last_full, last_empty;
  uint64_t verdict_given, verdict_read;
  uint32_t failed;  // bit k: the round's item k must be repeated
};

template <class P>
__device__ __forceinline__ Shared<P>& SharedOf(unsigned char* smem) {
  static_assert(sizeof(Shared<P>) <= 256);
  return *reinterpret_cast<Shared<P>*>(smem + P::barriers_at);
}

// What a launch depends on. The maps' dimensions are (64, heads, tokens, batch), the tables' (64,
// 2g-1).
struct Params {
  CUtensorMap query, key, value, rel_h, rel_w, out;
  unsigned long long* repeated_rows;  // may be null
  int heads, items;
};

struct Item {
  int batch, head, tile;
};

template <class P>
__device__ __forceinline__ Item Decode(int index, int heads) {
  const int plane = index / P::query_tiles;
  return {plane / heads, plane % heads, index % P::query_tiles};
}

// First key tile of an item: the one its first query lies in. The others follow cyclically.
template <class P>
__device__ __forceinline__ int FirstKeyTile(const Item& item) {
  return item.tile * P::rows / P::keys;
}

}  // namespace deepencoder::kernels::hopper_attention
