// How kernels that follow one another in a stream are launched.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <type_traits>

#include "kernels/device.h"
#include "kernels/status.h"

namespace deepencoder::kernels {

// While one lives, this thread's launches overlap (programmatic dependent launch, Hopper and later): the blocks of a
// kernel may take their places while the last ones of the kernel before it still run; there they do what needs
// nothing of it, and wait for its end (launch.cuh). Only where Possible().
class OverlapLaunches {
 public:
  explicit OverlapLaunches(bool overlap) : before_(active_) { active_ = overlap; }
  ~OverlapLaunches() { active_ = before_; }
  OverlapLaunches(const OverlapLaunches&) = delete;
  OverlapLaunches& operator=(const OverlapLaunches&) = delete;

  static bool Possible(const DeviceLimits& device) { return device.major >= 9; }
  static bool active() { return active_; }

 private:
  static inline thread_local bool active_ = false;
  bool before_;
};

// To be added to a launch's attributes if OverlapLaunches::active().
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
  config.numAttrs = OverlapLaunches::active() ? 1 : 0;
  DEEPENCODER_CUDA_RETURN(cudaLaunchKernelEx(&config, kernel, arguments...));
  return {};
}

}  // namespace deepencoder::kernels
