// A register of floats as wide as the instruction set this file is compiled for. Include only from
// files that are compiled once for each set: everything has internal linkage.
#pragma once

#include "encoder/cpu/kernels.h"

namespace deepencoder::cpu::DEEPENCODER_ISA {
namespace {

#if defined(__AVX512F__)
inline constexpr int kLanes = 16;
#elif defined(__AVX2__)
inline constexpr int kLanes = 8;
#else
inline constexpr int kLanes = 4;
#endif

using Vec = float __attribute__((vector_size(kLanes * 4)));
using BitVec = unsigned __attribute__((vector_size(kLanes * 4)));

#define DEEPENCODER_INLINE [[gnu::always_inline]] inline

DEEPENCODER_INLINE Vec Load(const float* from) {
  Vec v;
  __builtin_memcpy(&v, from, sizeof v);
  return v;
}
DEEPENCODER_INLINE void Store(float* to, Vec v) { __builtin_memcpy(to, &v, sizeof v); }
DEEPENCODER_INLINE Vec Broadcast(float value) { return Vec{} + value; }
DEEPENCODER_INLINE Vec Max(Vec a, Vec b) { return a > b ? a : b; }

DEEPENCODER_INLINE float Sum(Vec v) {
  float lanes[kLanes];
  Store(lanes, v);
  for (int step = kLanes / 2; step > 0; step /= 2) {
    for (int i = 0; i < step; ++i) lanes[i] += lanes[i + step];
  }
  return lanes[0];
}
DEEPENCODER_INLINE float Max(Vec v) {
  float lanes[kLanes];
  Store(lanes, v);
  float largest = lanes[0];
  for (int i = 1; i < kLanes; ++i) largest = lanes[i] > largest ? lanes[i] : largest;
  return largest;
}

constexpr int RoundUp(int value, int multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

}  // namespace
}  // namespace deepencoder::cpu::DEEPENCODER_ISA
