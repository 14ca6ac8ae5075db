// Moving registers between the warpgroups of a block (setmaxnreg). All threads of the warpgroup
// call.
#pragma once

namespace deepencoder::kernels::sm90 {

template <int n>
__device__ __forceinline__ void RegistersUp() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(n));
}
template <int n>
__device__ __forceinline__ void RegistersDown() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(n));
}

}  // namespace deepencoder::kernels::sm90
