// SAM's global attention with decomposed relative-position bias (blocks 2, 5, 8, 11).
//
// For query i = (yi, xi) and key j = (yj, xj) of a height x width grid, n = y * width + x, one
// head:
//   s(i,j) = q_i.k_j / 8 + q_i.rel_h[yi - yj + height - 1] + q_i.rel_w[xi - xj + width - 1]
//   out_i  = sum_j exp(s(i,j)) v_j / sum_j exp(s(i,j))
// The bias takes the unscaled q. Products take the model's type; scores, bias, softmax and sums are
// fp32.
//
//   q, k, v  [batch][height*width][heads][64]   any strides; the fused product is read in place
//   rel_h    [2*height - 1][64]                 contiguous; row height - 1 is offset 0
//   rel_w    [2*width - 1][64]
//   out      as q
// All of model type. No other global memory is used. The tables are weights: the kernel may read them
// before the kernels ahead of it in the stream are done.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "encoder/base/dtype.h"
#include "kernels/status.h"

namespace deepencoder::kernels {

inline constexpr int kGlobalAttentionHeadSize = 64;

struct AttentionStrides {  // elements, multiples of 8
  int64_t batch = 0, token = 0, head = 0;
};

enum class GlobalAttentionKernel : uint8_t {
  kAuto,      // kHopper where it can run, else kPortable
  kHopper,    // compute capability 9.0; square grids of 32, 40, 48, 64, 80
  kPortable,  // compute capability 8.0 and newer; any grid whose bias terms fit into shared memory
};

struct GlobalAttentionArgs {
  DType type = DType::kBf16;  // bf16 or fp16
  int batch = 0, heads = 0, height = 0, width = 0;
  const void* q = nullptr;
  const void* k = nullptr;
  const void* v = nullptr;
  AttentionStrides qkv_strides;
  const void* rel_h = nullptr;
  const void* rel_w = nullptr;
  void* out = nullptr;
  AttentionStrides out_strides;
  // Device memory; may be null. The Hopper kernel works without the maximum of a row's scores and
  // repeats the rows that outgrow the type's range; it adds the number of rows repeated.
  unsigned long long* repeated_rows = nullptr;
  GlobalAttentionKernel kernel = GlobalAttentionKernel::kAuto;
};

// Starts the work on `stream`, of the calling thread's current device, and returns. Keeps nothing:
// any number of threads, devices and stream captures. Pointers are aligned to 16 bytes; q, k, v and
// out must not overlap out.
Status LaunchGlobalAttention(const GlobalAttentionArgs& args, cudaStream_t stream);

// The fused product's layout: [batch][tokens][3][heads][64] in, [batch][tokens][heads][64] out.
inline GlobalAttentionArgs FusedGlobalAttention(DType type, int batch, int heads, int height,
                                                int width, const void* qkv, const void* rel_h,
                                                const void* rel_w, void* out) {
  const int64_t model = static_cast<int64_t>(heads) * kGlobalAttentionHeadSize;
  const int64_t tokens = static_cast<int64_t>(height) * width;
  const auto at = [&](int part) { return static_cast<const char*>(qkv) + part * model * 2; };
  GlobalAttentionArgs args;
  args.type = type, args.batch = batch, args.heads = heads, args.height = height,
  args.width = width;
  args.q = at(0), args.k = at(1), args.v = at(2);
  args.qkv_strides = {3 * model * tokens, 3 * model, kGlobalAttentionHeadSize};
  args.rel_h = rel_h, args.rel_w = rel_w, args.out = out;
  args.out_strides = {model * tokens, model, kGlobalAttentionHeadSize};
  return args;
}

}  // namespace deepencoder::kernels
