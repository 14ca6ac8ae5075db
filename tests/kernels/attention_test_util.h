// What the tests of the small attention kernels share: device memory, random inputs as the kernel
// sees them, and comparison with a reference that also gives each value's error bound.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "encoder/base/dtype.h"
#include "kernels/status.h"
#include "tests/kernels/gpu_test.h"

namespace deepencoder::kernels {

// Half the distance of neighbouring numbers, relative: what rounding once may cost.
inline double UnitRoundoff(DType type) { return type == DType::kBf16 ? 0x1p-8 : 0x1p-11; }

// Half the distance of the smallest numbers: the least that rounding may cost. Nothing in bf16,
// whose exponents are fp32's.
inline double LeastError(DType type) { return type == DType::kBf16 ? 0x1p-126 : 0x1p-25; }

inline uint16_t Encode(DType type, float value) {
  return type == DType::kBf16 ? __bfloat16_as_ushort(__float2bfloat16(value))
                              : __half_as_ushort(__float2half(value));
}
inline float Decode(DType type, uint16_t bits) {
  return type == DType::kBf16 ? __bfloat162float(__ushort_as_bfloat16(bits))
                              : __half2float(__ushort_as_half(bits));
}

// Device memory of 2-byte elements.
class DeviceArray {
 public:
  explicit DeviceArray(size_t count) : count_(count) {
    if (cudaMalloc(&data_, count * sizeof(uint16_t)) != cudaSuccess) data_ = nullptr;
  }
  ~DeviceArray() { cudaFree(data_); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;

  void* get() const { return data_; }
  cudaError_t Set(DType type, const std::vector<float>& values) {
    std::vector<uint16_t> bits(count_);
    for (size_t i = 0; i < count_; ++i) bits[i] = Encode(type, values[i]);
    return cudaMemcpy(data_, bits.data(), count_ * sizeof(uint16_t), cudaMemcpyHostToDevice);
  }
  // NaN in either type.
  cudaError_t Poison() { return cudaMemset(data_, 0xFF, count_ * sizeof(uint16_t)); }
  cudaError_t Get(DType type, std::vector<float>& values) const {
    std::vector<uint16_t> bits(count_);
    values.resize(count_);
    const cudaError_t error =
        cudaMemcpy(bits.data(), data_, count_ * sizeof(uint16_t), cudaMemcpyDeviceToHost);
    for (size_t i = 0; i < count_; ++i) values[i] = Decode(type, bits[i]);
    return error;
  }

 private:
  void* data_ = nullptr;
  size_t count_;
};

// About normal values of the given deviation, rounded to `type`: four of splitmix64's 16-bit fields
// summed, repeated after a prime number of them, as drawing would be most of the test's time.
inline std::vector<float> RandomValues(DType type, size_t count, double deviation, uint64_t seed) {
  constexpr size_t kPeriod = 1'000'003;
  constexpr double kMean = 2 * 65535.0;
  constexpr double kDeviation = 37837.2;  // of the sum: sqrt(4 (2^32 - 1) / 12)
  const float factor = static_cast<float>(deviation / kDeviation);
  std::vector<float> values(count);
  uint64_t state = seed * 0x9E3779B97F4A7C15u;
  const size_t drawn = std::min(count, kPeriod);
  for (float& value : std::span(values).first(drawn)) {
    uint64_t z = state += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    z ^= z >> 31;
    const uint32_t sum = (z & 0xFFFF) + (z >> 16 & 0xFFFF) + (z >> 32 & 0xFFFF) + (z >> 48);
    value =
        Decode(type, Encode(type, (static_cast<float>(sum) - static_cast<float>(kMean)) * factor));
  }
  for (size_t i = drawn; i < count; ++i) values[i] = values[i - kPeriod];
  return values;
}

// One head's context of one query in double precision, and what rounding may cost each element:
//   u (|context| + those)  the result is rounded to the type once,
//   u sum p |v|            each weight is, before the product; small ones by LeastError at most,
//   2 e sum p |v|          scores carry an error e, from 64 additions in fp32 relative to the sum
//                          of their terms' magnitudes, and exponentials 2^-22.
struct ReferenceRow {
  double context[64];
  double bound[64];
};

struct ScoredKey {
  double score;
  double magnitude;  // sum of the magnitudes of the terms of the score
  const float* v;
};

inline ReferenceRow Attend(DType type, const std::vector<ScoredKey>& keys) {
  double most = -INFINITY;
  double magnitude = 0;
  for (const ScoredKey& key : keys) {
    most = std::max(most, key.score);
    magnitude = std::max(magnitude, key.magnitude);
  }
  ReferenceRow row = {};
  double sum = 0;
  double values[64] = {};  // sums of |v|
  for (const ScoredKey& key : keys) {
    const double weight = std::exp(key.score - most);
    sum += weight;
    for (int c = 0; c < 64; ++c) {
      row.context[c] += weight * key.v[c];
      row.bound[c] += weight * std::abs(key.v[c]);
      values[c] += std::abs(key.v[c]);
    }
  }
  const double unit = UnitRoundoff(type);
  const double least = LeastError(type);
  const double score_error = 64 * 0x1p-23 * magnitude + 0x1p-22;
  for (int c = 0; c < 64; ++c) {
    row.context[c] /= sum;
    const double before_rounding =
        ((unit + 2 * score_error) * row.bound[c] + least * values[c]) / sum;
    row.bound[c] = before_rounding + unit * (std::abs(row.context[c]) + before_rounding) + least;
  }
  return row;
}

// Gathers rows of a result against their references.
class Comparison {
 public:
  explicit Comparison(DType type) : type_(type) {}

  void Add(const float* actual, const ReferenceRow& expected) {
    for (int c = 0; c < 64; ++c) {
      const double error = std::abs(actual[c] - expected.context[c]);
      if (!(error <= expected.bound[c])) ++outside_;
      worst_ = std::max(worst_, error / expected.bound[c]);
      error_ += error * error;
      norm_ += expected.context[c] * expected.context[c];
    }
    ++rows_;
  }
  double RelativeError() const { return std::sqrt(error_ / norm_); }

  // Every element within its bound; and together within one unit of roundoff: two roundings of
  // about 0.4 units each (uniform in the logarithm), independent from element to element.
  void Check(const std::string& what) const {
    EXPECT_GT(rows_, 0) << what;
    EXPECT_EQ(outside_, 0) << what << ": elements outside their bound, of " << 64 * rows_
                           << "; the worst at " << worst_ << " times it";
    EXPECT_LE(RelativeError(), UnitRoundoff(type_)) << what;
  }

 private:
  DType type_;
  int64_t rows_ = 0;
  int64_t outside_ = 0;
  double worst_ = 0;
  double error_ = 0;
  double norm_ = 0;
};

inline int64_t CountNotFinite(const std::vector<float>& values) {
  int64_t count = 0;
  for (const float value : values) count += !std::isfinite(value);
  return count;
}

}  // namespace deepencoder::kernels
