// Attention with decomposed relative-position bias on the host in double precision, one query at a
// time, and what rounding to the model type may do to it.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "encoder/base/dtype.h"

namespace deepencoder::kernels::testing {

inline constexpr int kHead = 64;

// What a wrong kernel might compute instead: tests ask that the right one is far from it.
enum class Mistake : uint8_t { kNone, kSwappedTables, kScaledQueryInBias, kNoBias };

// One (batch, head): rows of 64.
struct HostHead {
  int height = 0, width = 0;
  std::vector<float> q, k, v;       // [tokens][64]
  std::vector<float> rel_h, rel_w;  // [2 height - 1][64], [2 width - 1][64]
  int tokens() const { return height * width; }
};

inline double Dot(const float* a, const float* b) {
  double sum = 0;
  for (int d = 0; d < kHead; ++d) sum += static_cast<double>(a[d]) * b[d];
  return sum;
}
inline double AbsDot(const float* a, const float* b) {
  double sum = 0;
  for (int d = 0; d < kHead; ++d) sum += std::fabs(static_cast<double>(a[d]) * b[d]);
  return sum;
}

struct ReferenceRow {
  double out[kHead];
  double bound[kHead];  // of |computed - out|, see ReferenceAttention
};

// s(i,j) = q_i.k_j/8 + q_i.rel_h[yi-yj+height-1] + q_i.rel_w[xi-xj+width-1], softmax, times v.
//
// The bound, with u the type's unit roundoff: the result is rounded (u |out|); so is each p (u sum
// p|v| / sum p =: u A); and q may be rounded again after scaling, which moves a score by at most u
// sum_d |q_d k_d| / 8 =: u D_j and so the result by at most 2 A u max_j D_j. fp32 arithmetic in
// between adds a few 2^-24 of the largest score.
inline ReferenceRow ReferenceAttention(const HostHead& head, int query, DType type,
                                       Mistake mistake = Mistake::kNone) {
  const int h = head.height, w = head.width, n = head.tokens();
  const bool swapped = mistake == Mistake::kSwappedTables;
  const std::vector<float>& table_h = swapped ? head.rel_w : head.rel_h;
  const std::vector<float>& table_w = swapped ? head.rel_h : head.rel_w;
  const double bias_scale = mistake == Mistake::kScaledQueryInBias ? 0.125
                            : mistake == Mistake::kNoBias          ? 0.
                                                                   : 1.;
  const float* const q = &head.q[static_cast<size_t>(query) * kHead];
  std::vector<double> bias_h(h), bias_w(w), s(n);
  for (int y = 0; y < h; ++y)
    bias_h[y] = bias_scale * Dot(q, &table_h[(query / w - y + h - 1) * kHead]);
  for (int x = 0; x < w; ++x)
    bias_w[x] = bias_scale * Dot(q, &table_w[(query % w - x + w - 1) * kHead]);
  double most = -INFINITY, drift = 0, largest = 0;
  for (int j = 0; j < n; ++j) {
    const float* const k = &head.k[static_cast<size_t>(j) * kHead];
    s[j] = Dot(q, k) / 8 + bias_h[j / w] + bias_w[j % w];
    most = std::max(most, s[j]);
    drift = std::max(drift, AbsDot(q, k) / 8);
    largest = std::max(largest, std::fabs(s[j]));
  }
  ReferenceRow row{};
  double sum = 0, absolute[kHead] = {};
  for (int j = 0; j < n; ++j) {
    const double p = std::exp(s[j] - most);
    sum += p;
    for (int d = 0; d < kHead; ++d) {
      const double v = head.v[static_cast<size_t>(j) * kHead + d];
      row.out[d] += p * v, absolute[d] += p * std::fabs(v);
    }
  }
  const double u = type == DType::kBf16 ? 0x1p-9 : 0x1p-12, fp32 = 0x1p-22 * (1 + largest);
  for (int d = 0; d < kHead; ++d) {
    row.out[d] /= sum;
    row.bound[d] =
        u * std::fabs(row.out[d]) + absolute[d] / sum * (u + 2 * u * drift + fp32) + 0x1p-24;
  }
  return row;
}

}  // namespace deepencoder::kernels::testing
