#include <string>

#include "kernels/arguments.h"
#include "kernels/global_attention_portable.cuh"
#include "kernels/global_attention_portable.h"
#include "kernels/launch.h"

namespace deepencoder::kernels {
namespace {

using portable_attention::Kernel;
using portable_attention::SharedBytes;

template <typename T, int kWarps, bool kWhole>
Status Launch(const GlobalAttentionArgs& args, const DeviceLimits& device, cudaStream_t stream) {
  const int64_t tokens = static_cast<int64_t>(args.height) * args.width;
  const int64_t blocks =
      args.batch * args.heads * CeilDiv(tokens, portable_attention::kQueries * kWarps);
  // The largest allowance: every grid size asks for another.
  DEEPENCODER_RETURN((AllowSharedMemory<Kernel<T, kWarps, kWhole>>(device, device.shared_bytes)));
  return LaunchKernel(Kernel<T, kWarps, kWhole>, static_cast<unsigned>(blocks), kWarps * kWarpSize,
                      SharedBytes(kWarps, args.height, args.width), stream, args);
}

template <typename T, int kWarps>
Status LaunchWidth(const GlobalAttentionArgs& args, const DeviceLimits& device,
                   cudaStream_t stream) {
  return args.width % 8 == 0 ? Launch<T, kWarps, true>(args, device, stream)
                             : Launch<T, kWarps, false>(args, device, stream);
}

template <typename T>
Status LaunchType(const GlobalAttentionArgs& args, const DeviceLimits& device,
                  cudaStream_t stream) {
  if (SharedBytes(4, args.height, args.width) <= device.shared_bytes)
    return LaunchWidth<T, 4>(args, device, stream);
  const int64_t least = SharedBytes(1, args.height, args.width);
  if (least <= device.shared_bytes) return LaunchWidth<T, 1>(args, device, stream);
  return {Code::kUnsupported, "global attention: a grid of " + std::to_string(args.height) + "x" +
                                  std::to_string(args.width) + " needs " + std::to_string(least) +
                                  " bytes of shared memory, a block of this device has " +
                                  std::to_string(device.shared_bytes)};
}

}  // namespace

Status LaunchPortableGlobalAttention(const GlobalAttentionArgs& args, const DeviceLimits& device,
                                     cudaStream_t stream) {
  return args.type == DType::kBf16 ? LaunchType<__nv_bfloat16>(args, device, stream)
                                   : LaunchType<__half>(args, device, stream);
}

}  // namespace deepencoder::kernels
