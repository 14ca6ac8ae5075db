// The turns of a block's consumer warpgroups at the matrix units.
//
// The units serve the products of all groups at once. Groups in step would therefore all wait for
// their scores, then all compete for the exponentials, and leave one of the two idle all the time. So
// a group issues the scores of a tile when it is its turn, and passes the turn on when it has them:
// while one has its exponentials, the next has its scores. Each group takes one turn a tile, whether
// or not it has rows in the item.
#pragma once

#include "kernels/global_attention_sm90_plan.cuh"

namespace deepencoder::kernels::hopper_attention {

// A turn is a barrier of the hardware's with both groups' threads: the one before arrives, the group
// itself waits. Barrier 0 is __syncthreads'.
template <class P>
class Turns {
 public:
  // All threads of the group call each of these.
  static __device__ __forceinline__ void Begin() {  // once, before the first turn
    if (Group() == P::groups - 1) Pass();
  }
  static __device__ __forceinline__ void Await() {
    asm volatile("bar.sync %0, 256;" ::"r"(1 + Group()));
  }
  static __device__ __forceinline__ void Pass() {
    const int next = Group() + 1 == P::groups ? 0 : Group() + 1;
    asm volatile("bar.arrive %0, 256;" ::"r"(1 + next));
  }
  static __device__ __forceinline__ void End() {  // once, after the last turn
    if (Group() == 0) Await();
  }

 private:
  static_assert(P::groups >= 2);
  static __device__ __forceinline__ int Group() { return threadIdx.x / 128; }
};

}  // namespace deepencoder::kernels::hopper_attention
