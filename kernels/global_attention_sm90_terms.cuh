// The bias terms of a warp's 16 query rows: q times a table.
#pragma once

#include "kernels/global_attention_sm90_plan.cuh"
#include "kernels/sm90/wgmma.cuh"

namespace deepencoder::kernels::hopper_attention {

// For the thread's two rows r: row_r[(j - first) mod g] = log2(e) q_r.table[at_r - j + g-1], j = 0..g-1, where
// at_r is the query's grid row (rel_h) or column (rel_w). The product with the whole table, in two halves (all
// four warps of the group at once), and a skewed store of what lies in reach into the warp's scratch.
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
#pragma unroll
    for (int i = 0; i < P::grid / 2; ++i) {
      const int column = half * P::grid + i / 4 * 8 + 2 * quad + (i & 1);
      const int j = (i & 2 ? at1 : at0) + P::grid - 1 - column;
      const int to = j - first + (j < first ? P::grid : 0);
      if (j >= 0 && j < P::grid) (i & 2 ? row1 : row0)[to] = d[i] * kLog2e;
    }
  }
  __syncwarp();
}

}  // namespace deepencoder::kernels::hopper_attention
