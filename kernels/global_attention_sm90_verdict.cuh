// The order of a block's items, and how its warps agree on which to repeat.
//
// A block takes its items in rounds of up to 32: first each of the round quickly, then, with the
// careful loop, those in which some row's sum passed the limit. Producer and consumers walk the
// same list, so the producer must learn the verdicts: consumer warps set bits of Shared::failed,
// and
//   verdict_given  completes when every consumer warp has finished the round's quick items; all
//                  then read the bits;
//   verdict_read   completes when every consumer warp has read them; the producer then clears them,
//                  before it loads anything of the next round, so before any consumer can set one.
// The pipeline drains once a round and not once an item. An item is repeated or not by its own rows
// alone: a result does not depend on what else is in the batch.
#pragma once

#include "kernels/global_attention_sm90_plan.cuh"
#include "kernels/sm90/mbarrier.cuh"

namespace deepencoder::kernels::hopper_attention {

inline constexpr int kRound = 32;  // bits of Shared::failed

// quick(item, bit) and careful(item) for the items of this block; verdicts() returns the bits of a
// round.
template <typename Quick, typename Verdicts, typename Careful>
__device__ __forceinline__ void ForEachItem(int items, Quick quick, Verdicts verdicts,
                                            Careful careful) {
  const int step = gridDim.x;
  int parity = 0;
#pragma unroll 1
  for (int first = blockIdx.x; first < items; first += kRound * step, parity ^= 1) {
#pragma unroll 1
    for (int k = 0; k < kRound && first + k * step < items; ++k) quick(first + k * step, k);
#pragma unroll 1
    for (uint32_t failed = verdicts(parity); failed != 0; failed &= failed - 1) {
      careful(first + (__ffs(failed) - 1) * step);
    }
  }
}

// Consumer warps; all lanes.
template <class P>
__device__ __forceinline__ void GiveVerdict(Shared<P>& shared, bool failed, int bit) {
  if (__any_sync(~0u, failed) && threadIdx.x % 32 == 0) atomicOr(&shared.failed, 1u << bit);
}

template <class P>
__device__ __forceinline__ uint32_t AwaitVerdicts(Shared<P>& shared, int parity) {
  const bool leader = threadIdx.x % 32 == 0;
  __syncwarp();
  if (leader) sm90::BarrierArrive(&shared.verdict_given);
  sm90::BarrierWait(&shared.verdict_given, parity);
  uint32_t failed = 0;
  if (leader) {
    failed = *const_cast<volatile uint32_t*>(&shared.failed);
    sm90::BarrierArrive(&shared.verdict_read);
  }
  return __shfl_sync(~0u, failed, 0);
}

// The producer's thread.
template <class P>
__device__ __forceinline__ uint32_t CollectVerdicts(Shared<P>& shared, int parity) {
  sm90::BarrierWait(&shared.verdict_given, parity);
  const uint32_t failed = *const_cast<volatile uint32_t*>(&shared.failed);
  sm90::BarrierWait(&shared.verdict_read, parity);
  *const_cast<volatile uint32_t*>(&shared.failed) = 0;
  return failed;
}

}  // namespace deepencoder::kernels::hopper_attention
