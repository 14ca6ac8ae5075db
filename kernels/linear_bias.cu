#include "kernels/arguments.h"
#include "kernels/element.cuh"
#include "kernels/launch.cuh"
#include "kernels/linear_bias.h"

namespace deepencoder::kernels {
namespace {

constexpr int kThreads = 128;

template <typename T>
__global__ void __launch_bounds__(kThreads) WidenBiasKernel(int n, const T* bias, float* wide) {
  BeginKernel();
  const int i = (blockIdx.x * kThreads + threadIdx.x) * kVector;
  if (i >= n) return;
  float values[kVector];
  Load8(bias + i, values);
  Store8(wide + i, values);
}

}  // namespace

Status LaunchWidenBias(DType type, int n, const void* bias, float* wide, cudaStream_t stream) {
  DEEPENCODER_RETURN(CheckModelType(type, "type"));
  DEEPENCODER_RETURN(CheckRange(n, 8, 1 << 24, "n"));
  if (n % 8 != 0) return InvalidArgument("n must be a multiple of 8");
  DEEPENCODER_RETURN(CheckPointer(bias, "bias"));
  DEEPENCODER_RETURN(CheckPointer(wide, "wide"));
  const auto blocks = static_cast<unsigned>(CeilDiv(n, kThreads * kVector));
  if (type == DType::kBf16) {
    return LaunchKernel(WidenBiasKernel<__nv_bfloat16>, blocks, kThreads, 0, stream, n,
                        static_cast<const __nv_bfloat16*>(bias), wide);
  }
  return LaunchKernel(WidenBiasKernel<__half>, blocks, kThreads, 0, stream, n,
                      static_cast<const __half*>(bias), wide);
}

}  // namespace deepencoder::kernels
