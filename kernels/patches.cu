#include "kernels/arguments.h"
#include "kernels/element.cuh"
#include "kernels/launch.cuh"
#include "kernels/patches.h"

namespace deepencoder::kernels {
namespace {

constexpr int kPatch = 16;
constexpr int kThreads = 256;
constexpr int kChunk = 16;                       // bytes of a view a thread turns at a time
constexpr int kRowChunks = kPatch * 3 / kChunk;  // of a patch's row: 3

// A thread turns 16 bytes. Consecutive threads write consecutive 32-byte pieces of the patches.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    ViewPatchesKernel(ViewPatchesArgs args, int64_t chunks) {
  __shared__ float normalised[256];
  normalised[threadIdx.x] = (__fdiv_rn(static_cast<float>(threadIdx.x), 255.f) - 0.5f) / 0.5f;
  __syncthreads();
  BeginKernel();
  const int64_t chunk = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (chunk >= chunks) return;
  const int grid = args.side / kPatch;
  const int part = static_cast<int>(chunk % kRowChunks);
  const int ky = static_cast<int>(chunk / kRowChunks % kPatch);
  const int64_t patch = chunk / (kRowChunks * kPatch);
  const int px = static_cast<int>(patch % grid);
  const int py = static_cast<int>(patch / grid % grid);
  const uint8_t* view = args.views[patch / (grid * grid)];
  const uint4 bytes = *reinterpret_cast<const uint4*>(
      view + (static_cast<int64_t>(py * kPatch + ky) * args.side + px * kPatch) * 3 +
      part * kChunk);
  const uint32_t words[4] = {bytes.x, bytes.y, bytes.z, bytes.w};
  T* out = static_cast<T*>(args.patches) + chunk * kChunk;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float value[kVector];
#pragma unroll
    for (int i = 0; i < kVector; ++i)
      value[i] = normalised[words[2 * half + i / 4] >> 8 * (i % 4) & 0xFF];
    Store8(out + half * kVector, value);
  }
}

// A thread moves 8 channels of one of the nine neighbours; moving needs no arithmetic, so no type.
__global__ void __launch_bounds__(kThreads)
    ConvPatchesKernel(ConvPatchesArgs args, int out, int64_t pieces) {
  BeginKernel();
  const int64_t piece = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (piece >= pieces) return;
  const int per_pixel = args.channels / kVector;
  const int c = static_cast<int>(piece % per_pixel);
  const int neighbour = static_cast<int>(piece / per_pixel % 9);
  const int64_t pixel = piece / (per_pixel * 9);
  const int x = static_cast<int>(pixel % out) * args.stride + neighbour % 3 - 1;
  const int y = static_cast<int>(pixel / out % out) * args.stride + neighbour / 3 - 1;
  const int64_t image = pixel / (static_cast<int64_t>(out) * out);
  uint4 value = make_uint4(0, 0, 0, 0);
  if (x >= 0 && x < args.grid && y >= 0 && y < args.grid) {
    value = static_cast<const uint4*>(
        args.x)[((image * args.grid + y) * args.grid + x) * per_pixel + c];
  }
  static_cast<uint4*>(args.patches)[piece] = value;
}

}  // namespace

Status LaunchViewPatches(const ViewPatchesArgs& args, cudaStream_t stream) {
  DEEPENCODER_RETURN(CheckModelType(args.type, "view patches: type"));
  DEEPENCODER_RETURN(CheckRange(args.batch, 1, 1 << 16, "view patches: batch"));
  DEEPENCODER_RETURN(CheckRange(args.side, kPatch, 1 << 14, "view patches: side"));
  if (args.side % kPatch != 0) return InvalidArgument("view patches: side is not a multiple of 16");
  DEEPENCODER_RETURN(CheckPointer(args.views, "view patches: views", alignof(void*)));
  DEEPENCODER_RETURN(CheckPointer(args.patches, "view patches: patches"));
  const int64_t chunks = static_cast<int64_t>(args.batch) * args.side * args.side * 3 / kChunk;
  const auto blocks = static_cast<unsigned>(CeilDiv(chunks, kThreads));
  const auto kernel =
      args.type == DType::kBf16 ? ViewPatchesKernel<__nv_bfloat16> : ViewPatchesKernel<__half>;
  return LaunchKernel(kernel, blocks, kThreads, 0, stream, args, chunks);
}

Status LaunchConvPatches(const ConvPatchesArgs& args, cudaStream_t stream) {
  DEEPENCODER_RETURN(CheckModelType(args.type, "conv patches: type"));
  DEEPENCODER_RETURN(CheckRange(args.batch, 1, 1 << 16, "conv patches: batch"));
  DEEPENCODER_RETURN(CheckRange(args.grid, 1, 1 << 12, "conv patches: grid"));
  DEEPENCODER_RETURN(CheckRange(args.stride, 1, 2, "conv patches: stride"));
  DEEPENCODER_RETURN(CheckRange(args.channels, kVector, 1 << 12, "conv patches: channels"));
  if (args.channels % kVector != 0)
    return InvalidArgument("conv patches: channels is not a multiple of 8");
  DEEPENCODER_RETURN(CheckPointer(args.x, "conv patches: x"));
  DEEPENCODER_RETURN(CheckPointer(args.patches, "conv patches: patches"));
  const int out = (args.grid - 1) / args.stride + 1;
  const int64_t pieces =
      static_cast<int64_t>(args.batch) * out * out * 9 * (args.channels / kVector);
  return LaunchKernel(ConvPatchesKernel, static_cast<unsigned>(CeilDiv(pieces, kThreads)), kThreads,
                      0, stream, args, out, pieces);
}

}  // namespace deepencoder::kernels
