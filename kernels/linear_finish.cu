// Memory-bound: one read and one write of y, 16 bytes a thread and access. A block takes rows in turn;
// its threads lie along n, so bias comes from L1 after the first row.
#include <algorithm>
#include <cstdint>

#include "kernels/arguments.h"
#include "kernels/element.cuh"
#include "kernels/linear_activation.cuh"
#include "kernels/linear_finish.h"

namespace deepencoder::kernels {
namespace {

constexpr int kThreads = 256;
// Fills any GPU several times over; each thread then takes several vectors.
constexpr int kMaxBlocks = 8192;

// Vectors of 8 elements are numbered along rows: v = row * n/8 + column/8.
template <typename T, typename Y, Epilogue epilogue>
__global__ void __launch_bounds__(kThreads)
    LinearFinishKernel(uint32_t vectors, uint32_t row_vectors, Y* __restrict__ y, int64_t ldy,
                       const T* __restrict__ bias) {
  for (uint32_t v = blockIdx.x * kThreads + threadIdx.x; v < vectors; v += gridDim.x * kThreads) {
    const uint32_t row = v / row_vectors;
    const uint32_t column = (v - row * row_vectors) * kVector;
    Y* const at = y + row * ldy + column;
    float values[kVector];
    Load8(at, values);
    if (bias != nullptr) {
      float offsets[kVector];
      Load8(bias + column, offsets);
#pragma unroll
      for (int i = 0; i < kVector; ++i) values[i] += offsets[i];
    }
#pragma unroll
    for (int i = 0; i < kVector; ++i) values[i] = Activate<epilogue>(values[i]);
    Store8(at, values);
  }
}

template <typename T, typename Y>
Status Launch(int64_t m, int n, void* y, int64_t ldy, const void* bias, Epilogue epilogue,
              cudaStream_t stream) {
  const auto row_vectors = static_cast<uint32_t>(n / kVector);
  const auto vectors = static_cast<uint32_t>(m * row_vectors);
  const auto blocks =
      static_cast<uint32_t>(std::min<int64_t>(CeilDiv(vectors, kThreads), kMaxBlocks));
  auto* const out = static_cast<Y*>(y);
  const auto* const offsets = static_cast<const T*>(bias);
  switch (epilogue) {
    case Epilogue::kNone:
      LinearFinishKernel<T, Y, Epilogue::kNone>
          <<<blocks, kThreads, 0, stream>>>(vectors, row_vectors, out, ldy, offsets);
      break;
    case Epilogue::kGelu:
      LinearFinishKernel<T, Y, Epilogue::kGelu>
          <<<blocks, kThreads, 0, stream>>>(vectors, row_vectors, out, ldy, offsets);
      break;
    case Epilogue::kQuickGelu:
      LinearFinishKernel<T, Y, Epilogue::kQuickGelu>
          <<<blocks, kThreads, 0, stream>>>(vectors, row_vectors, out, ldy, offsets);
      break;
  }
  DEEPENCODER_CUDA_RETURN(cudaGetLastError());
  return {};
}

}  // namespace

Status LaunchLinearFinish(DType type, DType y_type, int64_t m, int n, void* y, int64_t ldy,
                          const void* bias, Epilogue epilogue, cudaStream_t stream) {
  DEEPENCODER_RETURN(CheckModelType(type, "type"));
  if (y_type != type && y_type != DType::kFp32) {
    return InvalidArgument("y_type must be type or fp32");
  }
  DEEPENCODER_RETURN(CheckRange(n, 8, 1 << 24, "n"));
  DEEPENCODER_RETURN(CheckRange(m, 1, (int64_t{1} << 32) / n, "m"));
  DEEPENCODER_RETURN(CheckRange(ldy, n, int64_t{1} << 32, "ldy"));
  if (n % 8 != 0 || ldy % 8 != 0) return InvalidArgument("n and ldy must be multiples of 8");
  DEEPENCODER_RETURN(CheckPointer(y, "y"));
  if (bias != nullptr) DEEPENCODER_RETURN(CheckPointer(bias, "bias"));
  if (type == DType::kBf16) {
    return y_type == DType::kFp32
               ? Launch<__nv_bfloat16, float>(m, n, y, ldy, bias, epilogue, stream)
               : Launch<__nv_bfloat16, __nv_bfloat16>(m, n, y, ldy, bias, epilogue, stream);
  }
  return y_type == DType::kFp32 ? Launch<__half, float>(m, n, y, ldy, bias, epilogue, stream)
                                : Launch<__half, __half>(m, n, y, ldy, bias, epilogue, stream);
}

}  // namespace deepencoder::kernels
