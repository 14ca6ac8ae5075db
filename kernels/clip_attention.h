// Self-attention of CLIP's layers: softmax(q k^T / 8) v over all tokens of a view, no mask, no
// bias.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "encoder/base/dtype.h"
#include "kernels/status.h"

namespace deepencoder::kernels {

//   qkv  [batch][tokens][3][16][64]  the fused product; qkv_stride elements between tokens, a
//                                    multiple of 8, at least 3072; tokens * qkv_stride between
//                                    images
//   out  [batch][tokens][16][64]     contiguous; every element is written
// Both of `type`, aligned to 16 bytes. Scores and softmax are fp32; the unnormalised probabilities
// are rounded to `type` before the product with v. Nothing but `out` is written, nothing is
// allocated: legal during capture.
struct ClipAttentionArgs {
  DType type = DType::kBf16;
  int batch = 0;
  int tokens = 0;  // any, 1 to 2^20; CLIP's are 65, 101, 257 and 401
  const void* qkv = nullptr;
  int64_t qkv_stride = 3 * 16 * 64;
  void* out = nullptr;
};
Status LaunchClipAttention(const ClipAttentionArgs& args, cudaStream_t stream);

}  // namespace deepencoder::kernels
