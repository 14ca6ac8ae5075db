// The bias terms of a warp's 16 query rows: q times a table.
#pragma once

#include "kernels/global_attention_sm90_plan.cuh"
#include "kernels/sm90/wgmma.cuh"

namespace deepencoder::kernels::hopper_attention {

// For the thread's two rows r: row_r[ScratchAt((j - first) mod g)] = log2(e) q_r.table[at_r - j +
// g-1], j = 0..g-1, where at_r is the query's grid row (rel_h) or column (rel_w). The product with
// the whole table, in two halves (all four warps of the group at once), and a skewed store of what
// lies in reach into the warp's scratch.
template <class P>
__device__ __forceinline__ void RelativeTerm(const uint32_t (&q)[16], const unsigned char* table,
                                             int at0, int at1, int first, float* row0, float* row1,
                                             int quad) {
  using namespace sm90;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float d[P::grid / 2];
#pragma unroll
    for (float& x : d) x = 0.f;
    const uint32_t low = DescriptorLow(table + half * P::grid * 128);
    Pin(d);
    MmaFence();
#pragma unroll
    for (int k = 0; k < kHead / 16; ++k)
      GroupMma<typename P::Type, P::grid, Order::kNk>::Issue(d, &q[4 * k], Descriptor(low + 2 * k));
    MmaCommit();
    MmaWait<0>();
    Pin(d);
    // Column c = half*g + 8b + 2 quad + odd holds j = at + g-1 - c. Its place moves by 4 from one
    // block b to the next, so all addresses but the first are constants away.
#pragma unroll
    for (int which = 0; which < 4; ++which) {  // elements `which` of the blocks
      const int j0 =
          (which & 2 ? at1 : at0) + P::grid - 1 - (which & 1) - 2 * quad - half * P::grid;
      float* const to =
          (which & 2 ? row1 : row0) + P::ScratchAt(j0 - first + 2 * P::grid) - P::grid;
#pragma unroll
      for (int b = 0; b < P::grid / 8; ++b) {
        const int j = j0 - 8 * b;
        if (j >= 0 && j < P::grid)
          to[(j < first ? P::grid / 2 : 0) - 4 * b] = d[4 * b + which] * kLog2e;
      }
    }
  }
  __syncwarp();
}

}  // namespace deepencoder::kernels::hopper_attention
