#include "kernels/arguments.h"
#include "kernels/element.cuh"
#include "kernels/launch.cuh"
#include "kernels/reply_rows.h"

namespace deepencoder::kernels {
namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads) ReplyRowsKernel(ReplyRowsArgs args) {
  BeginKernel();
  const int64_t at = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kVector;
  if (at >= args.elements) return;
  const ReplyPlace place = args.places[blockIdx.y];
  float value[kVector];
  Load8(args.rows + blockIdx.y * args.elements + at, value);
  char* to = static_cast<char*>(args.packed) + place.offset;
  switch (place.type) {
    case DType::kBf16:
      Store8(reinterpret_cast<__nv_bfloat16*>(to) + at, value);
      break;
    case DType::kFp16:
      Store8(reinterpret_cast<__half*>(to) + at, value);
      break;
    case DType::kFp32:
      Store8(reinterpret_cast<float*>(to) + at, value);
      break;
  }
}

}  // namespace

Status LaunchReplyRows(const ReplyRowsArgs& args, cudaStream_t stream) {
  DEEPENCODER_RETURN(CheckRange(args.batch, 1, 65535, "reply rows: batch"));
  DEEPENCODER_RETURN(CheckRange(args.elements, kVector, int64_t{1} << 31, "reply rows: elements"));
  if (args.elements % kVector != 0)
    return InvalidArgument("reply rows: elements is not a multiple of 8");
  DEEPENCODER_RETURN(CheckPointer(args.rows, "reply rows: rows"));
  DEEPENCODER_RETURN(CheckPointer(args.places, "reply rows: places", alignof(ReplyPlace)));
  DEEPENCODER_RETURN(CheckPointer(args.packed, "reply rows: packed"));
  const dim3 grid(static_cast<unsigned>(CeilDiv(args.elements, kThreads * kVector)), args.batch);
  return LaunchKernel(ReplyRowsKernel, grid, kThreads, 0, stream, args);
}

}  // namespace deepencoder::kernels
