// The inner product of a separable 8-bit filter, in the instruction sets that are worth it. All give the
// same bytes: integer arithmetic modulo 2^32 whose true result fits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "encoder/resample/bicubic_filter.h"

namespace deepencoder {

// Fraction bits of a weight: 32 - 8 of a sample - 2 of headroom.
inline constexpr int kWeightBits = kFilterFractionBits;

// Weights are at most 1.9 in size, and so few or so small that no partial sum leaves 32 bits: a filter's.
// out[i] = clamp((2^21 + sum over k < taps of weights[k] * src[k * stride + i]) >> 22, 0, 255), i < count.
struct ResampleKernel {
  const char* name;
  // 32-bit words that `taps` weights take once packed.
  size_t (*packed_words)(size_t taps);
  void (*pack)(std::span<const int32_t> weights, int32_t* packed);
  // `src` rows of `count` bytes, `stride` apart, are read and nothing beyond them.
  void (*run)(const uint8_t* src, size_t stride, size_t taps, const int32_t* packed, uint8_t* out,
              size_t count);
};

// Those that this CPU can run, the portable one first, the fastest last.
std::span<const ResampleKernel> ResampleKernels();

}  // namespace deepencoder
