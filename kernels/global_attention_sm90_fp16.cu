#include "kernels/global_attention_sm90.cuh"

namespace deepencoder::kernels {

Status LaunchHopperGlobalAttentionFp16(const GlobalAttentionArgs& args, const DeviceLimits& device,
                                       cudaStream_t stream) {
  return hopper_attention::LaunchGrid<__half>(args, device, stream);
}

}  // namespace deepencoder::kernels
