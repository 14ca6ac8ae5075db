// Pillow's bicubic filter for one axis, in the fixed point in which it runs. Standard library only: the CPU's
// resize and the CUDA backend's both run on it.
//
// With s = in/out, f = max(s, 1), support 2f (all in double, in Pillow's order of operations): output i looks at
// inputs [first, first + count) around (i + 0.5) s; weight(j) = K((j - centre + 0.5)/f), K Keys' cubic with
// a = -0.5, divided by their sum, times 2^22, rounded half away from zero. Then
//   out = clamp((2^21 + sum of weight * in) >> 22, 0, 255).
#pragma once

#include <cstdint>
#include <vector>

namespace deepencoder {

inline constexpr int kFilterFractionBits = 22;

// Which input samples make one output of an axis, and how much of each.
struct AxisWeights {
  int first;                     // input sample that weights[0] belongs to
  std::vector<int32_t> weights;  // in units of 2^-22; they sum to about 1
};
// in, out >= 1; 0 <= index < out. An axis that keeps its size must be copied, not filtered.
AxisWeights BicubicWeights(int in, int out, int index);

// The weights of all outputs of an axis, as arrays.
struct BicubicFilter {
  int in = 0, out = 0;
  int taps = 0;                  // row length of weights: the largest count
  std::vector<int32_t> first;    // [out]
  std::vector<int32_t> count;    // [out], 1 .. taps
  std::vector<int32_t> weights;  // [out][taps], zeros past count
};
BicubicFilter MakeBicubicFilter(int in, int out);

}  // namespace deepencoder
