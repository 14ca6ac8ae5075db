#include "kernels/arguments.h"
#include "kernels/clip_rows.h"
#include "kernels/element.cuh"
#include "kernels/launch.cuh"

namespace deepencoder::kernels {
namespace {

constexpr int kWidth = 1024;
constexpr int kThreads = kWidth / kVector;  // a block turns one row

template <typename T>
__global__ void __launch_bounds__(kThreads) ClipRowsKernel(ClipRowsArgs args) {
  BeginKernel();
  const int64_t row = blockIdx.x;
  const int64_t from = row / (args.tokens - 1) * args.tokens + row % (args.tokens - 1) + 1;
  const int column = static_cast<int>(threadIdx.x) * kVector;
  float value[kVector];
  Load8(args.x + from * kWidth + column, value);
  Store8(static_cast<T*>(args.y) + row * kWidth + column, value);
}

}  // namespace

Status LaunchClipRows(const ClipRowsArgs& args, cudaStream_t stream) {
  DEEPENCODER_RETURN(CheckModelType(args.type, "clip rows: type"));
  DEEPENCODER_RETURN(CheckRange(args.batch, 1, 1 << 16, "clip rows: batch"));
  DEEPENCODER_RETURN(CheckRange(args.tokens, 2, 1 << 15, "clip rows: tokens"));
  DEEPENCODER_RETURN(CheckPointer(args.x, "clip rows: x"));
  DEEPENCODER_RETURN(CheckPointer(args.y, "clip rows: y"));
  const unsigned rows = static_cast<unsigned>(args.batch) * static_cast<unsigned>(args.tokens - 1);
  const auto kernel =
      args.type == DType::kBf16 ? ClipRowsKernel<__nv_bfloat16> : ClipRowsKernel<__half>;
  return LaunchKernel(kernel, rows, kThreads, 0, stream, args);
}

}  // namespace deepencoder::kernels
