// y = epilogue(x W^T + bias) (+ residual): every dense layer and, over gathered patches, every
// convolution.
//
//   x        [m][k]  row stride lda elements   model type (bf16 or fp16)
//   weight   [n][k]  contiguous                model type; as checkpoints store nn.Linear
//   bias     [n]     model type, may be null
//   residual [m][n]  row stride ldr            type of y; added after the epilogue; may be null or y
//   y        [m][n]  row stride ldy            model type or fp32
// Accumulation and epilogue are fp32; y is rounded once.
//
// Batch invariance: the bits of a row do not depend on m. An image must be encoded to the same bits
// alone and in any company, so every candidate (library algorithm or our own kernel) accumulates k
// in ascending order in one fp32 accumulator: no split-K, no stream-K, whatever m is. Small m (CLIP
// at batch 1: m = 257) is served by small output tiles instead. A test compares rows computed at m
// = 257 with the same rows at larger m, bit by bit.
//
// With a second operand (x2, weight columns k.. k+k2) the product runs over the two as if
// concatenated along k: the projector reads [CLIP, SAM] so, without a copy.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "encoder/base/dtype.h"
#include "kernels/status.h"

namespace deepencoder::kernels {

enum class Epilogue : uint8_t {
  kNone,
  kGelu,       // x/2 (1 + erf(x/sqrt 2)): SAM
  kQuickGelu,  // x sigmoid(1.702 x): CLIP
};

struct LinearArgs {
  DType type = DType::kBf16;    // of x, weight and bias
  DType y_type = DType::kBf16;  // of y and residual: `type` or kFp32
  int m = 0, n = 0, k = 0;
  const void* x = nullptr;
  int64_t lda = 0;
  const void* weight = nullptr;
  int64_t ldw = 0;  // row stride of weight, elements: k, or k + k2
  const void* bias = nullptr;
  Epilogue epilogue = Epilogue::kNone;
  const void* residual = nullptr;
  int64_t ldr = 0;
  void* y = nullptr;
  int64_t ldy = 0;
};

}  // namespace deepencoder::kernels
