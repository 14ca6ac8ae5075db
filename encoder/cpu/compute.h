// The arithmetic a model runs in: element type and kernels.
#pragma once

#include <cstddef>

#include "encoder/base/dtype.h"
#include "encoder/cpu/cpu_features.h"
#include "encoder/cpu/kernels.h"
#include "encoder/cpu/weights.h"

namespace deepencoder::cpu {

struct Compute {
  DType type;  // kBf16 or kFp32: of products' operands; sums, norms and residual streams are floats
  const VectorKernels* vectors;
  const AttentionKernel* attention;  // of `type`

  // kBf16 needs Cpu().amx_bf16; `isa` must be one of Cpu().isas.
  static Compute For(DType type, Isa isa);

  // Rows of `x` in parallel; `out` holds `to` (kFp32 or kBf16).
  void LayerNorm(const float* x, const LayerNormWeights& weights, float eps, int width, int rows,
                 DType to, void* out) const;
  // `count` floats to `type`, in parallel.
  void Cast(const float* from, size_t count, void* to) const;
};

}  // namespace deepencoder::cpu
