// The bias terms of a warp's 16 query rows: q times a table, in products of the whole warpgroup, and
// skewed stores of what lies in reach into the warp's scratch.
//
// Table row t holds the term of distance t - (g-1), so query row r with grid row (or column) at_r
// needs for key row (or column) j the product with table row at_r - j + g-1.
#pragma once

#include "kernels/global_attention_sm90_plan.cuh"
#include "kernels/sm90/wgmma.cuh"

namespace deepencoder::kernels::hopper_attention {

// d = q times g rows of a table from `rows` on, issued and committed. Any row may be the first: the
// swizzle is by address.
template <class P>
__device__ __forceinline__ void IssueTerm(float (&d)[P::grid / 2], const uint32_t (&q)[16],
                                          const unsigned char* rows) {
  using Mma = sm90::GroupMma<typename P::Type, P::grid, sm90::Order::kNk>;
  const uint32_t low = sm90::DescriptorLow(rows);
  Mma::template Issue<false>(d, q, sm90::Descriptor(low));
#pragma unroll
  for (int k = 1; k < kHead / 16; ++k) Mma::Issue(d, &q[4 * k], sm90::Descriptor(low + 2 * k));
  sm90::MmaCommit();
}

// Of a warp's 16 queries from n on: their grid rows (or columns), and where the thread's two rows of
// terms go.
struct TermRows {
  template <typename Place>
  __device__ __forceinline__ TermRows(int n, Place place, float* to0, float* to1)
      : at(place(n)),
        at0(place(n + static_cast<int>(threadIdx.x) % 32 / 4)),
        at1(place(n + static_cast<int>(threadIdx.x) % 32 / 4 + 8)),
        row0(to0),
        row1(to1) {}
  int at, at0, at1;  // of the warp's first query and of the thread's two
  float *row0, *row1;
};

// row_r[ScratchAt((j - first) mod g)] = log2(e) d, for the columns of d that are of some key j; d is
// of the table's rows from `from` on.
template <class P>
__device__ __forceinline__ void StoreTerm(const float (&d)[P::grid / 2], const TermRows& rows,
                                          int from, int first) {
  // Column c = 8b + 2 quad + odd holds j = at + g-1 - from - c. Its place moves by 4 from one block
  // b to the next, so all addresses but the first are constants away.
  const int quad = threadIdx.x % 4;
  float* to[4];
  int j0[4];
#pragma unroll
  for (int which = 0; which < 4; ++which) {  // elements `which` of the blocks
    j0[which] = (which & 2 ? rows.at1 : rows.at0) + P::grid - 1 - (which & 1) - 2 * quad - from;
    to[which] = (which & 2 ? rows.row1 : rows.row0) +
                P::ScratchAt(j0[which] - first + 2 * P::grid) - P::grid;
  }
  // Where 16 queries do not cross a grid row, whole blocks are out of reach of all of the warp's:
  // table rows from `at` to at + 15 + g-1 are not.
  constexpr bool kSkips = P::grid % 16 == 0;
#pragma unroll
  for (int b = 0; b < P::grid / 8; ++b) {
    if (kSkips && static_cast<unsigned>(from + 8 * b + 7 - rows.at) >= P::grid + 22) continue;
#pragma unroll
    for (int which = 0; which < 4; ++which) {
      const int j = j0[which] - 8 * b;
      if (j >= 0 && j < P::grid)
        to[which][(j < first ? P::grid / 2 : 0) - 4 * b] = d[4 * b + which] * kLog2e;
    }
  }
}

}  // namespace deepencoder::kernels::hopper_attention
