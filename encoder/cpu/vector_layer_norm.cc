#include "encoder/cpu/vector_layer_norm.h"

#include "encoder/cpu/vector.h"

namespace deepencoder::cpu::DEEPENCODER_ISA {
namespace {

using HalfVec = unsigned short __attribute__((vector_size(kLanes * 2)));

// Nearest even. Normalised values are finite unless the input was not: NaN keeps a mantissa bit
// because the rounding carry of a quiet NaN never reaches the exponent from below bit 22.
DEEPENCODER_INLINE void StoreBf16(unsigned short* to, Vec v) {
  const BitVec bits = (BitVec)v;
  const BitVec rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16;
  const HalfVec half = __builtin_convertvector(rounded & 0xFFFF, HalfVec);
  __builtin_memcpy(to, &half, sizeof half);
}

float Mean(const float* x, int width) {
  Vec sum = {};
  for (int i = 0; i < width; i += kLanes) sum += Load(x + i);
  return Sum(sum) / static_cast<float>(width);
}

// About the mean, not E[x^2] - mean^2: rows whose variance is small against their mean would lose
// it.
float Variance(const float* x, int width, float mean) {
  Vec sum = {};
  for (int i = 0; i < width; i += kLanes) {
    const Vec deviation = Load(x + i) - mean;
    sum += deviation * deviation;
  }
  return Sum(sum) / static_cast<float>(width);
}

}  // namespace

void LayerNorm(const LayerNormArgs& args) {
  for (int row = 0; row < args.rows; ++row) {
    const size_t start = static_cast<size_t>(row) * args.width;
    const float* x = args.x + start;
    const float mean = Mean(x, args.width);
    const float scale = 1.0f / __builtin_sqrtf(Variance(x, args.width, mean) + args.eps);
    for (int i = 0; i < args.width; i += kLanes) {
      const Vec y = (Load(x + i) - mean) * scale * Load(args.weight + i) + Load(args.bias + i);
      if (args.to_bf16) {
        StoreBf16(static_cast<unsigned short*>(args.out) + start + i, y);
      } else {
        Store(static_cast<float*>(args.out) + start + i, y);
      }
    }
  }
}

}  // namespace deepencoder::cpu::DEEPENCODER_ISA
