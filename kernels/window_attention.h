// Attention inside 14x14 windows with relative-position bias: eight of SAM's twelve layers.
//
// The grid is padded at the bottom and the right to a multiple of 14 and cut into windows. Over the
// 196 positions j of its window, a query at (yi, xi) of the window has the scores
//   s_j = q.k_j / 8 + q.rel_h[yi - yj + 13] + q.rel_w[xi - xj + 13]
// (q unscaled in both bias terms)
// and its context is softmax(s) v. A padded position is a live key: its token is zero before the
// qkv product, so that k and v are that product's bias; it has its own bias terms and is never
// masked. Padded queries are not computed.
#pragma once

#include <cuda_runtime_api.h>

#include "encoder/base/dtype.h"
#include "kernels/status.h"

namespace deepencoder::kernels {

//   qkv       [batch][grid * grid][3][12][64]  the fused product over real tokens, row by row
//   qkv_bias  [3][12][64]
//   rel_h     [27][64], rel_w [27][64]
//   out       [batch][grid * grid][12][64]     every element is written
// All of `type`, contiguous, aligned to 16 bytes. Scores, bias and softmax are fp32; only the
// unnormalised probabilities are rounded to `type` before the product with v. Nothing but `out` is
// written, nothing is allocated: legal during capture.
struct WindowAttentionArgs {
  DType type = DType::kBf16;
  int batch = 0;
  int grid = 0;  // any, 1 to 4096
  const void* qkv = nullptr;
  const void* qkv_bias = nullptr;
  const void* rel_h = nullptr;
  const void* rel_w = nullptr;
  void* out = nullptr;
};
Status LaunchWindowAttention(const WindowAttentionArgs& args, cudaStream_t stream);

}  // namespace deepencoder::kernels
