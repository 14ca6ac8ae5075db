// The portable kernel of global_attention.h, behind its checks.
#pragma once

#include "kernels/device.h"
#include "kernels/global_attention.h"

namespace deepencoder::kernels {

// `args` is checked; the device's compute capability is at least 8.0. kUnsupported if the bias
// terms of 16 queries do not fit into a block's shared memory.
Status LaunchPortableGlobalAttention(const GlobalAttentionArgs& args, const DeviceLimits& device,
                                     cudaStream_t stream);

}  // namespace deepencoder::kernels
