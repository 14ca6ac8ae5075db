// The Hopper kernel of global_attention.h, behind its checks.
#pragma once

#include "kernels/device.h"
#include "kernels/global_attention.h"

namespace deepencoder::kernels {

constexpr bool HopperGlobalAttentionHasGrid(int height, int width) {
  return height == width &&
         (height == 32 || height == 40 || height == 48 || height == 64 || height == 80);
}

// `args` is checked, the device's compute capability is 9.0 and its grid is one of those above.
// One for each type, each in a file of its own: their compilation takes long.
Status LaunchHopperGlobalAttentionBf16(const GlobalAttentionArgs& args, const DeviceLimits& device,
                                       cudaStream_t stream);
Status LaunchHopperGlobalAttentionFp16(const GlobalAttentionArgs& args, const DeviceLimits& device,
                                       cudaStream_t stream);

}  // namespace deepencoder::kernels
