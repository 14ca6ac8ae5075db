// The device's side of launch.h.
#pragma once

#include "kernels/launch.h"

namespace deepencoder::kernels {

// Until every kernel before this one in the stream is done and its writes are seen. Each thread calls it before it
// touches global memory that another kernel wrote or may still read. What no kernel writes (the weights) may be read
// before.
__device__ __forceinline__ void WaitForInputs() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Lets the blocks of the next kernel take what room there is. After WaitForInputs: a kernel that has begun then knows
// that all before its predecessor are done.
__device__ __forceinline__ void LetNextBegin() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

__device__ __forceinline__ void BeginKernel() {
  WaitForInputs();
  LetNextBegin();
}

}  // namespace deepencoder::kernels
