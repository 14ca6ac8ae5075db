#include "kernels/global_attention_sm90.cuh"

namespace deepencoder::kernels {

Status LaunchHopperGlobalAttentionBf16(const GlobalAttentionArgs& args, const DeviceLimits& device,
                                       cudaStream_t stream) {
  return hopper_attention::LaunchGrid<__nv_bfloat16>(args, device, stream);
}

}  // namespace deepencoder::kernels
