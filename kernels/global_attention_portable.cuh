// The portable kernel of global_attention.h: mma.sync, any grid.
//
// A block takes 16 queries a warp of one head; its keys and values pass through two stages of
// shared memory, 64 tokens at a time. In accumulator units (8 times a score; exponents are
// log2(e)/8 of them), with h(i,y) = 8 q_i.rel_h[yi-y+height-1] and w(i,x) = 8
// q_i.rel_w[xi-x+width-1]:
//   a(i,j) = h(i,yj) + w(i,xj) + q_i.k_j          accumulators start from h + w
//   m_i    = max(m_i, max_j a(i,j))               earlier sums are scaled by 2^(c (m_old - m_new))
//   p(i,j) = 2^(c (a(i,j) - m_i)),  c = log2(e)/8
//   l_i   += sum_j p,  o_i += sum_j p v_j;        out_i = o_i / l_i
// h and w of the block's queries lie in shared memory, computed from q and the tables in a
// prologue.
#pragma once

#include <cstdint>
#include <limits>

#include "kernels/element.cuh"
#include "kernels/global_attention.h"
#include "kernels/launch.cuh"
#include "kernels/mma.cuh"

namespace deepencoder::kernels::portable_attention {

inline constexpr int kHead = kGlobalAttentionHeadSize;
inline constexpr int kKeys = 64;     // a tile
inline constexpr int kQueries = 16;  // a warp
inline constexpr int kStages = 2;
inline constexpr int kTileBytes = kKeys * kHead * 2;
inline constexpr float kInverseScale = 8.f;  // 1 / (head size)^-1/2
inline constexpr float kExponent = kLog2E / kInverseScale;

// Floats between the bias terms of neighbouring queries. The eight queries that a warp reads at
// once lie in different banks: h is read one float at a time, w two.
constexpr int StrideH(int height) { return height | 1; }
constexpr int StrideW(int width) { return (width + 7) / 16 * 16 + 8; }

// Stages of keys and values, then h, then w.
constexpr int64_t SharedBytes(int warps, int height, int width) {
  return int64_t{2} * kStages * kTileBytes +
         int64_t{4} * kQueries * warps * (StrideH(height) + StrideW(width));
}

// Byte offset of 16-byte chunk `chunk` of row `row`: rows of 128 bytes, the chunks of eight rows in
// all banks.
__device__ __forceinline__ uint32_t Swizzle(int row, int chunk) {
  return row * 128 + ((chunk ^ (row & 7)) << 4);
}

// The thread's place: rows (queries) g and g + 8 of the warp's 16, columns 2t and 2t + 1 of each 8.
struct Lane {
  int lane = threadIdx.x % kWarpSize, warp = threadIdx.x / kWarpSize;
  int g = lane / 4, t = lane % 4;
};

// Pointers to the head's first token.
template <typename T>
struct Head {
  const T *q, *k, *v;
  T* out;
};

template <typename T>
__device__ __forceinline__ Head<T> HeadOf(const GlobalAttentionArgs& args, int plane) {
  const int64_t batch = plane / args.heads, head = plane % args.heads;
  const int64_t in = batch * args.qkv_strides.batch + head * args.qkv_strides.head;
  return {
      static_cast<const T*>(args.q) + in, static_cast<const T*>(args.k) + in,
      static_cast<const T*>(args.v) + in,
      static_cast<T*>(args.out) + batch * args.out_strides.batch + head * args.out_strides.head};
}

// Two neighbouring elements.
template <typename T>
__device__ __forceinline__ uint32_t LoadPair(const T* at) {
  return *reinterpret_cast<const uint32_t*>(at);
}

// The warp's 16 queries from `first` on as A operands; zeros past the last.
template <typename T>
__device__ __forceinline__ void LoadQueries(const T* q, int64_t stride, int first, int tokens,
                                            const Lane& at, uint32_t (&a)[kHead / 16][4]) {
#pragma unroll
  for (int k = 0; k < kHead / 16; ++k) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int row = first + at.g + (i & 1 ? 8 : 0), column = 16 * k + 2 * at.t + (i & 2 ? 8 : 0);
      a[k][i] = row < tokens ? LoadPair(q + row * stride + column) : 0;
    }
  }
}

// terms[r * stride + j] = 8 q_r.table[at_r - j + length-1], j = 0..length-1, for the thread's rows
// r = g and g + 8, whose grid rows or columns at0 and at1 lie in [least, most], as all the warp's
// do: the product with what can be in reach of the table, eight of its rows at a time, stored
// skewed.
template <typename T>
__device__ __forceinline__ void RelativeTerms(const uint32_t (&q)[kHead / 16][4], const T* table,
                                              int length, int at0, int at1, int least, int most,
                                              const Lane& at, float* terms, int stride) {
  float* const row0 = terms + at.g * stride;
  float* const row1 = row0 + 8 * stride;
#pragma unroll 1
  for (int block = least / 8 * 8; block < most + length; block += 8) {
    const T* const row = table + static_cast<int64_t>(block + at.g) * kHead + 2 * at.t;
    const bool inside = block + at.g < 2 * length - 1;
    float d[4] = {};
#pragma unroll
    for (int k = 0; k < kHead / 16; ++k)
      Mma<T>(d, q[k], inside ? LoadPair(row + 16 * k) : 0, inside ? LoadPair(row + 16 * k + 8) : 0);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int j = (i & 2 ? at1 : at0) + length - 1 - (block + 2 * at.t + (i & 1));
      if (j >= 0 && j < length) (i & 2 ? row1 : row0)[j] = kInverseScale * d[i];
    }
  }
}

// Starts the copies of one tile of keys and values; zeros past the last token.
template <int kWarps, typename T>
__device__ __forceinline__ void CopyTile(const Head<T>& head, int64_t stride, int first, int tokens,
                                         uint32_t stage) {
  constexpr int kChunks = kHead / kVector;  // of a row
#pragma unroll
  for (int i = threadIdx.x; i < kKeys * kChunks; i += kWarps * kWarpSize) {
    const int row = i / kChunks, chunk = i % kChunks, token = first + row;
    const bool inside = token < tokens;
    const int64_t from = (inside ? token : 0) * stride + chunk * kVector;
    CopyAsyncOrZero(stage + Swizzle(row, chunk), head.k + from, inside);
    CopyAsyncOrZero(stage + kTileBytes + Swizzle(row, chunk), head.v + from, inside);
  }
}

// h + w of the keys of a tile, for the thread's rows, as accumulators to start from.
// kWhole: the width is a multiple of 8, so that 8 neighbouring keys lie in one grid row.
template <bool kWhole>
class BiasTerms {
 public:
  // h, w: of the thread's row g.
  __device__ __forceinline__ BiasTerms(const float* h, const float* w, int height, int width, int t)
      : h0_(h),
        h1_(h + 8 * StrideH(height)),
        w0_(w),
        w1_(w + 8 * StrideW(width)),
        height_(height),
        width_(width) {
    x_ = kWhole ? 0 : 2 * t;
    shift_ = kWhole ? 2 * t : 0;
    Wrap();
  }

  // d[b]: keys 8b + 2t and 8b + 2t + 1 of the next tile.
  __device__ __forceinline__ void Start(float (&d)[kKeys / 8][4]) {
#pragma unroll
    for (int b = 0; b < kKeys / 8; ++b) {
      if constexpr (kWhole) {
        const int y = Row(y_);
        const float2 w0 = *reinterpret_cast<const float2*>(w0_ + x_ + shift_);
        const float2 w1 = *reinterpret_cast<const float2*>(w1_ + x_ + shift_);
        const float h0 = h0_[y], h1 = h1_[y];
        d[b][0] = h0 + w0.x, d[b][1] = h0 + w0.y, d[b][2] = h1 + w1.x, d[b][3] = h1 + w1.y;
      } else {
        const bool last = x_ + 1 == width_;
        const int y0 = Row(y_), y1 = Row(last ? y_ + 1 : y_), x1 = last ? 0 : x_ + 1;
        d[b][0] = h0_[y0] + w0_[x_], d[b][1] = h0_[y1] + w0_[x1];
        d[b][2] = h1_[y0] + w1_[x_], d[b][3] = h1_[y1] + w1_[x1];
      }
      x_ += 8;
      Wrap();
    }
  }

 private:
  __device__ __forceinline__ void Wrap() {
    if constexpr (kWhole) {
      if (x_ == width_) x_ = 0, ++y_;
    } else {
      while (x_ >= width_) x_ -= width_, ++y_;
    }
  }
  // Keys past the last are masked later: any term will do.
  __device__ __forceinline__ int Row(int y) const { return min(y, height_ - 1); }

  const float *const h0_, *const h1_, *const w0_, *const w1_;
  const int height_, width_;
  int x_, y_ = 0;  // of the thread's next key; with kWhole, of the first of its eight
  int shift_;
};

// a += q k^T
template <typename T>
__device__ __forceinline__ void AddScores(const uint32_t (&q)[kHead / 16][4], uint32_t keys,
                                          int lane, float (&a)[kKeys / 8][4]) {
  const int row = (lane & 7) + (lane >> 4) * 8, chunk = (lane >> 3) & 1;
#pragma unroll
  for (int k = 0; k < kHead / 16; ++k) {
#pragma unroll
    for (int n = 0; n < kKeys / 16; ++n) {
      uint32_t b[4];
      LoadMatrices(b, keys + Swizzle(16 * n + row, 2 * k + chunk));
      Mma<T>(a[2 * n], q[k], b[0], b[1]);
      Mma<T>(a[2 * n + 1], q[k], b[2], b[3]);
    }
  }
}

// o += p v
template <typename T>
__device__ __forceinline__ void AddValues(const float (&p)[kKeys / 8][4], uint32_t values, int lane,
                                          float (&o)[kHead / 8][4]) {
  const int row = lane & 15, chunk = lane >> 4;
#pragma unroll
  for (int k = 0; k < kKeys / 16; ++k) {
    const float(&low)[4] = p[2 * k], (&high)[4] = p[2 * k + 1];
    const uint32_t a[4] = {Element<T>::Pack(low[0], low[1]), Element<T>::Pack(low[2], low[3]),
                           Element<T>::Pack(high[0], high[1]), Element<T>::Pack(high[2], high[3])};
#pragma unroll
    for (int n = 0; n < kHead / 16; ++n) {
      uint32_t b[4];
      LoadMatricesTransposed(b, values + Swizzle(16 * k + row, 2 * n + chunk));
      Mma<T>(o[2 * n], a, b[0], b[1]);
      Mma<T>(o[2 * n + 1], a, b[2], b[3]);
    }
  }
}

// The running softmax of the thread's two rows.
struct Softmax {
  float m[2] = {-std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity()};
  float l[2] = {};  // the thread's part
  float o[kHead / 8][4] = {};

  // a -> p; m, l and o follow. Every row has a finite score.
  __device__ __forceinline__ void Add(float (&a)[kKeys / 8][4]) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float most = m[r];
#pragma unroll
      for (int b = 0; b < kKeys / 8; ++b) most = fmaxf(most, fmaxf(a[b][2 * r], a[b][2 * r + 1]));
      most = QuadMax(most);
      const float scale = Exp2(kExponent * (m[r] - most));
      m[r] = most, l[r] *= scale;
#pragma unroll
      for (int b = 0; b < kHead / 8; ++b) o[b][2 * r] *= scale, o[b][2 * r + 1] *= scale;
#pragma unroll
      for (int b = 0; b < kKeys / 8; ++b) {
#pragma unroll
        for (int e = 2 * r; e < 2 * r + 2; ++e) {
          a[b][e] = Exp2(kExponent * (a[b][e] - most));
          l[r] += a[b][e];
        }
      }
    }
  }
};

template <typename T, int kWarps, bool kWhole>
__global__ void __launch_bounds__(kWarps* kWarpSize)
    Kernel(const __grid_constant__ GlobalAttentionArgs args) {
  BeginKernel();
  extern __shared__ __align__(128) unsigned char shared[];
  const Lane at;
  const int height = args.height, width = args.width, tokens = height * width;
  constexpr int kRows = kQueries * kWarps;
  const int query_tiles = (tokens + kRows - 1) / kRows, key_tiles = (tokens + kKeys - 1) / kKeys;
  const Head<T> head = HeadOf<T>(args, blockIdx.x / query_tiles);
  const int first = blockIdx.x % query_tiles * kRows + kQueries * at.warp;  // query of the warp
  const uint32_t stages = SharedAddress(shared);
  const int64_t stride = args.qkv_strides.token;
  CopyTile<kWarps>(head, stride, 0, tokens, stages);
  CopyAsyncCommit();

  // ---- prologue: q, h, w; past the last query, those of the last
  uint32_t q[kHead / 16][4];
  LoadQueries(head.q, stride, first, tokens, at, q);
  float* const h = reinterpret_cast<float*>(shared + 2 * kStages * kTileBytes) +
                   kQueries * at.warp * StrideH(height);
  float* const w = reinterpret_cast<float*>(shared + 2 * kStages * kTileBytes) +
                   kRows * StrideH(height) + kQueries * at.warp * StrideW(width);
  {
    const int last = tokens - 1, n0 = min(first + at.g, last), n1 = min(first + at.g + 8, last);
    RelativeTerms(q, static_cast<const T*>(args.rel_h), height, n0 / width, n1 / width,
                  min(first, last) / width, min(first + kQueries - 1, last) / width, at, h,
                  StrideH(height));
    RelativeTerms(q, static_cast<const T*>(args.rel_w), width, n0 % width, n1 % width, 0, width - 1,
                  at, w, StrideW(width));
    __syncwarp();
  }
  BiasTerms<kWhole> bias(h + at.g * StrideH(height), w + at.g * StrideW(width), height, width,
                         at.t);

  // ---- key loop
  Softmax softmax;
#pragma unroll 1
  for (int tile = 0; tile < key_tiles; ++tile) {
    const uint32_t keys = stages + tile % kStages * 2 * kTileBytes;
    if (tile + 1 < key_tiles) {
      CopyTile<kWarps>(head, stride, (tile + 1) * kKeys, tokens,
                       stages + (tile + 1) % kStages * 2 * kTileBytes);
    }
    CopyAsyncCommit();
    float a[kKeys / 8][4];
    bias.Start(a);
    CopyAsyncWait<1>();
    __syncthreads();
    AddScores<T>(q, keys, at.lane, a);
    if ((tile + 1) * kKeys > tokens) {
#pragma unroll
      for (int b = 0; b < kKeys / 8; ++b) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          if (tile * kKeys + 8 * b + 2 * at.t + (e & 1) >= tokens)
            a[b][e] = -std::numeric_limits<float>::infinity();
        }
      }
    }
    softmax.Add(a);
    AddValues<T>(a, keys + kTileBytes, at.lane, softmax.o);
    __syncthreads();  // the stage may be filled again
  }

  // ---- epilogue
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int row = first + at.g + 8 * r;
    const float scale = 1.f / QuadSum(softmax.l[r]);
    if (row >= tokens) continue;
    T* const out = head.out + row * args.out_strides.token + 2 * at.t;
#pragma unroll
    for (int b = 0; b < kHead / 8; ++b) {
      *reinterpret_cast<uint32_t*>(out + 8 * b) =
          Element<T>::Pack(softmax.o[b][2 * r] * scale, softmax.o[b][2 * r + 1] * scale);
    }
  }
}

}  // namespace deepencoder::kernels::portable_attention
