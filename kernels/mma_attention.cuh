// Attention of a warp over tiles in shared memory, for heads of 64: softmax(scores) v with a
// running maximum. A warp has M tiles of 16 queries; keys go in groups of 16. A row of 64 elements
// takes kRow elements of shared memory, so that the eight rows of a matrix instruction's operand
// lie in different banks.
//
// With lane = 4 g + t a lane holds rows g + 8 i of its queries, i < 2 M, and in every group of keys
// the columns 8 h + 2 t + c, h and c in {0, 1} (kernels/mma.cuh).
#pragma once

#include <cstdint>
#include <limits>

#include "kernels/element.cuh"
#include "kernels/mma.cuh"

namespace deepencoder::kernels {

inline constexpr int kHeadSize = 64;
inline constexpr int kRow = kHeadSize + kVector;
inline constexpr int kSteps = kHeadSize / 16;        // of a product along the head
inline constexpr int kStepBytes = 16 * 2;            // from a step to the next
inline constexpr int kPieces = kHeadSize / kVector;  // 16-byte pieces of a row: one lane copies one
inline constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

// Scores are divided by 8, the square root of the head size, in the exponent: 2^(kExponentFactor s)
// = e^(s / 8).
inline constexpr float kInverseScale = 8;
inline constexpr float kExponentFactor = kLog2E / kInverseScale;
static_assert(kInverseScale * kInverseScale == kHeadSize);

// Where a lane's row of an operand begins. A: rows 0-7 and 8-15 of the left eight columns, then of
// the right; also B transposed on its way. B, stored by its columns: rows 0-7 left and right, then
// 8-15.
struct LaneRows {
  int a_row, a_column, b_row, b_column;
  __device__ __forceinline__ explicit LaneRows(int lane)
      : a_row(lane % 16),
        a_column(lane / 16 * 8),
        b_row(lane / 16 * 8 + lane % 8),
        b_column(lane / 8 % 2 * 8) {}
};

// [m][2 g + h] is the D tile of 16 queries and columns 8 h .. 8 h + 7 of group g.
template <int M, int kGroups>
using Scores = float[M][2 * kGroups][4];

// scores += q k^T. `load_q(step, q)` gives the A tiles of a step; `k` is the address of the lane's
// row in the first group, kGroupBytes from a group to the next.
template <typename T, int M, int kGroups, int kGroupBytes, typename LoadQ>
__device__ __forceinline__ void AddProducts(const LoadQ& load_q, uint32_t k,
                                            Scores<M, kGroups>& scores) {
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    uint32_t q[M][4];
    load_q(step, q);
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
      uint32_t b[4];
      LoadMatrices(b, k + g * kGroupBytes + step * kStepBytes);
#pragma unroll
      for (int m = 0; m < M; ++m) {
        Mma<T>(scores[m][2 * g], q[m], b[0], b[1]);
        Mma<T>(scores[m][2 * g + 1], q[m], b[2], b[3]);
      }
    }
  }
}

// Of each of the lane's queries, over the keys so far.
template <int M>
struct Softmax {
  float most[2 * M];  // kExponentFactor times the largest score
  float sum[2 * M];   // of the weights 2^(kExponentFactor score - most), over the lane's columns
  float context[M][8][4];  // of the weights times v: D tiles along the head

  __device__ __forceinline__ Softmax() : sum{}, context{} {
#pragma unroll
    for (float& value : most) value = kMinusInfinity;
  }

  // Brings row i's sums to the maximum `to`, not below the present one.
  __device__ __forceinline__ void Raise(int i, float to) {
    Scale(i, Exp2(most[i] - to));
    most[i] = to;
  }
  __device__ __forceinline__ void Scale(int i, float factor) {
    sum[i] *= factor;
#pragma unroll
    for (auto& tile : context[i / 2]) {
      tile[i % 2 * 2] *= factor;
      tile[i % 2 * 2 + 1] *= factor;
    }
  }
};

// Brings the running sums to a maximum that covers these scores, one of which is finite in each
// row.
template <int M, int kGroups>
__device__ __forceinline__ void RaiseMaximum(const Scores<M, kGroups>& scores,
                                             Softmax<M>& softmax) {
#pragma unroll
  for (int i = 0; i < 2 * M; ++i) {
    float most = kMinusInfinity;
#pragma unroll
    for (const auto& tile : scores[i / 2]) {
      most = fmaxf(most, fmaxf(tile[i % 2 * 2], tile[i % 2 * 2 + 1]));
    }
    softmax.Raise(i, fmaxf(softmax.most[i], kExponentFactor * QuadMax(most)));
  }
}

// context += weights v over the groups kFrom .. kTo - 1; `v` is the address of the lane's row in
// group 0.
template <typename T, int kFrom, int kTo, int kGroupBytes, int M, int kGroups>
__device__ __forceinline__ void AddContexts(const Scores<M, kGroups>& scores, uint32_t v,
                                            Softmax<M>& softmax) {
#pragma unroll
  for (int g = kFrom; g < kTo; ++g) {
    uint32_t weights[M][4];
#pragma unroll
    for (int i = 0; i < 2 * M; ++i) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const float(&tile)[4] = scores[i / 2][2 * g + h];
        const float low = Exp2(fmaf(tile[i % 2 * 2], kExponentFactor, -softmax.most[i]));
        const float high = Exp2(fmaf(tile[i % 2 * 2 + 1], kExponentFactor, -softmax.most[i]));
        softmax.sum[i] += low + high;
        weights[i / 2][2 * h + i % 2] = Element<T>::Pack(low, high);
      }
    }
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      uint32_t b[4];
      LoadMatricesTransposed(b, v + g * kGroupBytes + step * kStepBytes);
#pragma unroll
      for (int m = 0; m < M; ++m) {
        Mma<T>(softmax.context[m][2 * step], weights[m], b[0], b[1]);
        Mma<T>(softmax.context[m][2 * step + 1], weights[m], b[2], b[3]);
      }
    }
  }
}

// rows[i] = context / sum, rounded: to shared memory, whence a row can leave in 16-byte pieces.
template <typename T, int M>
__device__ __forceinline__ void StoreContexts(const Softmax<M>& softmax, int lane,
                                              T (*rows)[kRow]) {
#pragma unroll
  for (int i = 0; i < 2 * M; ++i) {
    const float inverse = __fdividef(1, QuadSum(softmax.sum[i]));
#pragma unroll
    for (int n = 0; n < 8; ++n) {
      const float(&tile)[4] = softmax.context[i / 2][n];
      *reinterpret_cast<uint32_t*>(&rows[lane / 4 + 8 * i][8 * n + lane % 4 * 2]) =
          Element<T>::Pack(tile[i % 2 * 2] * inverse, tile[i % 2 * 2 + 1] * inverse);
    }
  }
}

}  // namespace deepencoder::kernels
