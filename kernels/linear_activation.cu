// Memory-bound: one read and one write of y, 16 bytes a thread and access.
#include <algorithm>
#include <cstdint>

#include "kernels/arguments.h"
#include "kernels/element.cuh"
#include "kernels/launch.cuh"
#include "kernels/linear_activation.cuh"
#include "kernels/linear_activation.h"

namespace deepencoder::kernels {
namespace {

constexpr int kThreads = 256;
// Fills any GPU several times over; each thread then takes several vectors.
constexpr int kMaxBlocks = 8192;

// Vectors of 8 elements are numbered along rows: v = row * n/8 + column/8.
template <typename T, Epilogue epilogue>
__global__ void __launch_bounds__(kThreads)
    ActivationKernel(uint32_t vectors, uint32_t row_vectors, T* y, int64_t ldy) {
  BeginKernel();
  for (uint32_t v = blockIdx.x * kThreads + threadIdx.x; v < vectors; v += gridDim.x * kThreads) {
    const uint32_t row = v / row_vectors;
    T* const at = y + row * ldy + (v - row * row_vectors) * kVector;
    float values[kVector];
    Load8(at, values);
#pragma unroll
    for (int i = 0; i < kVector; ++i) values[i] = Activate<epilogue>(values[i]);
    Store8(at, values);
  }
}

template <typename T>
Status Launch(int64_t m, int n, void* y, int64_t ldy, Epilogue epilogue, cudaStream_t stream) {
  const auto row_vectors = static_cast<uint32_t>(n / kVector);
  const auto vectors = static_cast<uint32_t>(m * row_vectors);
  const auto blocks =
      static_cast<uint32_t>(std::min<int64_t>(CeilDiv(vectors, kThreads), kMaxBlocks));
  const auto kernel = epilogue == Epilogue::kGelu ? ActivationKernel<T, Epilogue::kGelu>
                                                  : ActivationKernel<T, Epilogue::kQuickGelu>;
  return LaunchKernel(kernel, blocks, kThreads, 0, stream, vectors, row_vectors, static_cast<T*>(y),
                      ldy);
}

}  // namespace

Status LaunchActivation(DType type, int64_t m, int n, void* y, int64_t ldy, Epilogue epilogue,
                        cudaStream_t stream) {
  DEEPENCODER_RETURN(CheckRange(n, 8, 1 << 24, "n"));
  DEEPENCODER_RETURN(CheckRange(m, 1, (int64_t{1} << 32) / n, "m"));
  DEEPENCODER_RETURN(CheckRange(ldy, n, int64_t{1} << 32, "ldy"));
  if (n % 8 != 0 || ldy % 8 != 0) return InvalidArgument("n and ldy must be multiples of 8");
  DEEPENCODER_RETURN(CheckPointer(y, "y"));
  if (epilogue == Epilogue::kNone) return {};
  switch (type) {
    case DType::kBf16:
      return Launch<__nv_bfloat16>(m, n, y, ldy, epilogue, stream);
    case DType::kFp16:
      return Launch<__half>(m, n, y, ldy, epilogue, stream);
    case DType::kFp32:
      return Launch<float>(m, n, y, ldy, epilogue, stream);
  }
  return InvalidArgument("unknown type");
}

}  // namespace deepencoder::kernels
