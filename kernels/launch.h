// How kernels that follow one another in a stream are launched.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <type_traits>

#include "kernels/status.h"

#ifndef DEEPENCODER_OVERLAP_LAUNCHES
#define DEEPENCODER_OVERLAP_LAUNCHES 0
#endif

namespace deepencoder::kernels {

// Programmatic dependent launch (Hopper and later): the blocks of a kernel may take their places while the last ones
// of the kernel before it still run, and wait there for its end. A build option: DEEPENCODER_OVERLAP_LAUNCHES.
inline constexpr bool kOverlapLaunches = DEEPENCODER_OVERLAP_LAUNCHES != 0;

// To be added to a launch's attributes if kOverlapLaunches.
inline cudaLaunchAttribute OverlapAttribute() {
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  return attribute;
}

// Every kernel launched so begins with BeginKernel() (launch.cuh).
template <typename... Parameters>
Status LaunchKernel(void (*kernel)(Parameters...), dim3 grid, dim3 block, size_t shared_bytes,
                    cudaStream_t stream, std::type_identity_t<Parameters>... arguments) {
  cudaLaunchAttribute overlap = OverlapAttribute();
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  config.attrs = &overlap;
  config.numAttrs = kOverlapLaunches ? 1 : 0;
  DEEPENCODER_CUDA_RETURN(cudaLaunchKernelEx(&config, kernel, arguments...));
  return {};
}

}  // namespace deepencoder::kernels
