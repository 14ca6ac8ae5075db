#include "encoder/cpu/compute.h"

#include "encoder/cpu/parallel.h"

namespace deepencoder::cpu {
namespace {

const VectorKernels& KernelsFor(Isa isa) {
#if defined(__x86_64__)
  if (isa == Isa::kAvx512) return avx512::kKernels;
  if (isa == Isa::kAvx2) return avx2::kKernels;
#else
  static_cast<void>(isa);
#endif
  return baseline::kKernels;
}

}  // namespace

Compute Compute::For(DType type, Isa isa) {
  const VectorKernels& vectors = KernelsFor(isa);
  const AttentionKernel* attention = &vectors.attention;
#if defined(__x86_64__)
  if (type == DType::kBf16) attention = &amx::kAttention;
#endif
  return {type, &vectors, attention};
}

void Compute::LayerNorm(const float* x, const LayerNormWeights& weights, float eps, int width,
                        int rows, DType to, void* out) const {
  ParallelRows(rows, 32, [&](int first, int count) {
    const size_t start = static_cast<size_t>(first) * width;
    vectors->layer_norm({.x = x + start,
                         .weight = weights.weight,
                         .bias = weights.bias,
                         .eps = eps,
                         .width = width,
                         .rows = count,
                         .to_bf16 = to == DType::kBf16,
                         .out = static_cast<std::byte*>(out) + start * SizeOf(to)});
  });
}

void Compute::Cast(const float* from, size_t count, void* to) const {
  constexpr size_t kPiece = 16384;
  ParallelFor(static_cast<int>((count + kPiece - 1) / kPiece), [&](int task, int) {
    const size_t first = task * kPiece;
    Convert(from + first, type, static_cast<std::byte*>(to) + first * SizeOf(type),
            count - first < kPiece ? count - first : kPiece);
  });
}

}  // namespace deepencoder::cpu
