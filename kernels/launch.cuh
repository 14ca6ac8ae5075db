// The device's side of launch.h.
#pragma once

#include "kernels/launch.h"

namespace deepencoder::kernels {

// Before a kernel touches global memory that another wrote or may still read: waits until every kernel before it in
// the stream is done and its writes are seen, then lets the next one take its place. Every thread calls it. What does
// not touch such memory (barriers, descriptors, the weights' prefetch) may come before.
__device__ __forceinline__ void BeginKernel() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  if constexpr (kOverlapLaunches) {
    asm volatile("griddepcontrol.wait;" ::: "memory");
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
  }
#endif
}

}  // namespace deepencoder::kernels
