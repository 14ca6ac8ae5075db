// LayerNorm over rows, with the addition that may precede it.
//
//   s = x (+ add)                         written to `sum` if that is not null
//   y = (s - mean(s)) / sqrt(var(s) + eps) * weight + bias       var: the biased variance
//
//   x, sum [rows][width]     x_type, bf16, fp16 or fp32; sum may be x
//   add    [add_rows][width] x_type, row r of x takes row r % add_rows (a position table); may be
//   null weight, bias [width]     fp32 y      [rows][width]     y_type; may be x if the types are
//   equal
// width is 256, 768 or 1024. Mean and variance in fp32, from registers (two passes, one read).
// LayerNorm2d of the neck is the same over channels-last rows.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "encoder/base/dtype.h"
#include "kernels/status.h"

namespace deepencoder::kernels {

struct LayerNormArgs {
  DType x_type = DType::kBf16, y_type = DType::kBf16;
  int64_t rows = 0;
  int width = 0;
  const void* x = nullptr;
  const void* add = nullptr;
  int64_t add_rows = 0;
  void* sum = nullptr;
  const float* weight = nullptr;
  const float* bias = nullptr;
  float eps = 0.f;
  void* y = nullptr;
};

Status LaunchLayerNorm(const LayerNormArgs& args, cudaStream_t stream);

// CLIP's input: row 0 of an image is the class embedding, row 1 + i is row i of the compressed SAM
// features; plus positions; then LayerNorm. y is CLIP's residual stream.
//   features  [batch][tokens - 1][1024] type
//   class_row [1024] type        positions [tokens][1024] type
//   y         [batch][tokens][1024] y_type
struct ClipEmbedArgs {
  DType type = DType::kBf16, y_type = DType::kFp32;
  int batch = 0, tokens = 0;
  const void* features = nullptr;
  const void* class_row = nullptr;
  const void* positions = nullptr;
  const float* weight = nullptr;
  const float* bias = nullptr;
  float eps = 0.f;
  void* y = nullptr;
};

Status LaunchClipEmbed(const ClipEmbedArgs& args, cudaStream_t stream);

}  // namespace deepencoder::kernels
