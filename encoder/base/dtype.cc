#include "encoder/base/dtype.h"

#include <cstring>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace deepencoder {
namespace {

// The loops below go through memcpy because checkpoint data is aligned to a byte only; compilers
// turn it into unaligned vector loads and stores.

template <typename T>
T LoadElement(const void* from, size_t index) {
  T value;
  std::memcpy(&value, static_cast<const char*>(from) + index * sizeof(T), sizeof(T));
  return value;
}

template <typename T>
void StoreElement(void* to, size_t index, T value) {
  std::memcpy(static_cast<char*>(to) + index * sizeof(T), &value, sizeof(T));
}

__attribute__((always_inline)) inline void ToBf16Loop(const float* from, void* to, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    StoreElement<uint16_t>(to, i, FloatToBf16(LoadElement<float>(from, i)));
  }
}

__attribute__((always_inline)) inline void FromBf16Loop(const void* from, float* to, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    StoreElement<float>(to, i, Bf16ToFloat(LoadElement<uint16_t>(from, i)));
  }
}

void ToBf16Portable(const float* from, void* to, size_t count) { ToBf16Loop(from, to, count); }
void FromBf16Portable(const void* from, float* to, size_t count) { FromBf16Loop(from, to, count); }

void ToFp16Portable(const float* from, void* to, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    StoreElement<uint16_t>(to, i, FloatToFp16(LoadElement<float>(from, i)));
  }
}

void FromFp16Portable(const void* from, float* to, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    StoreElement<float>(to, i, Fp16ToFloat(LoadElement<uint16_t>(from, i)));
  }
}

struct Converters {
  void (*to_bf16)(const float*, void*, size_t) = ToBf16Portable;
  void (*from_bf16)(const void*, float*, size_t) = FromBf16Portable;
  void (*to_fp16)(const float*, void*, size_t) = ToFp16Portable;
  void (*from_fp16)(const void*, float*, size_t) = FromFp16Portable;
};

#if defined(__x86_64__)

__attribute__((target("avx2"))) void ToBf16Avx2(const float* from, void* to, size_t count) {
  ToBf16Loop(from, to, count);
}

__attribute__((target("avx2"))) void FromBf16Avx2(const void* from, float* to, size_t count) {
  FromBf16Loop(from, to, count);
}

__attribute__((target("avx,f16c"))) void ToFp16F16c(const float* from, void* to, size_t count) {
  auto* out = static_cast<char*>(to);
  size_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const __m128i halves = _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + 2 * i), halves);
  }
  ToFp16Portable(from + i, out + 2 * i, count - i);
}

__attribute__((target("avx,f16c"))) void FromFp16F16c(const void* from, float* to, size_t count) {
  const auto* in = static_cast<const char*>(from);
  size_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(in + 2 * i));
    _mm256_storeu_ps(to + i, _mm256_cvtph_ps(halves));
  }
  FromFp16Portable(in + 2 * i, to + i, count - i);
}

// __builtin_cpu_supports covers the operating system's part (saved registers); not every compiler's
// list of names has f16c, so that bit is read directly.
bool HasF16c() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}

#endif

// Chosen by a function pointer and not by target_clones: an ifunc resolver runs before a
// sanitizer's runtime is up.
const Converters& Best() {
  static const Converters best = [] {
    Converters chosen;
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2")) {
      chosen.to_bf16 = ToBf16Avx2;
      chosen.from_bf16 = FromBf16Avx2;
      if (HasF16c()) {
        chosen.to_fp16 = ToFp16F16c;
        chosen.from_fp16 = FromFp16F16c;
      }
    }
#endif
    return chosen;
  }();
  return best;
}

}  // namespace

std::string_view Name(DType type) {
  switch (type) {
    case DType::kBf16:
      return "bf16";
    case DType::kFp16:
      return "fp16";
    case DType::kFp32:
      return "fp32";
  }
  return "unknown";
}

std::optional<DType> ParseDType(std::string_view name) {
  for (const DType type : {DType::kBf16, DType::kFp16, DType::kFp32}) {
    if (name == Name(type)) return type;
  }
  return std::nullopt;
}

float Fp16ToFloat(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
  const uint32_t exponent = (bits >> 10) & 0x1Fu;
  const uint32_t fraction = bits & 0x3FFu;
  if (exponent == 0x1Fu) {  // infinity, or a NaN, which is made quiet as the hardware does
    const uint32_t quiet = fraction == 0 ? 0 : 0x400000u;
    return std::bit_cast<float>(sign | 0x7F800000u | quiet | fraction << 13);
  }
  if (exponent == 0) {  // zero or subnormal: fraction * 2^-24, exact in a float
    const float magnitude = static_cast<float>(fraction) * 0x1p-24f;
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(magnitude));
  }
  return std::bit_cast<float>(sign | (exponent + 112u) << 23 | fraction << 13);
}

uint16_t FloatToFp16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>((bits >> 16) & 0x8000u);
  const uint32_t magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) {  // NaN: quiet, upper payload kept
    return static_cast<uint16_t>(sign | 0x7E00u | ((magnitude >> 13) & 0x3FFu));
  }
  // 65520 lies halfway between the largest half, 65504, and 2^16: it rounds to even, to infinity.
  if (magnitude >= 0x477FF000u) return static_cast<uint16_t>(sign | 0x7C00u);
  if (magnitude < 0x38800000u) {  // below 2^-14: a subnormal half, a multiple of 2^-24
    // Adding 0.5, whose unit in the last place is 2^-24, lets the adder round to nearest even.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3F000000u));
  }
  // Rebias the exponent by 112 and round the 13 dropped bits to nearest even.
  const uint32_t rounded = magnitude + 0xFFFu + ((magnitude >> 13) & 1u);
  return static_cast<uint16_t>(sign | ((rounded - (112u << 23)) >> 13));
}

void Convert(const float* from, DType to_type, void* to, size_t count) {
  switch (to_type) {
    case DType::kBf16:
      return Best().to_bf16(from, to, count);
    case DType::kFp16:
      return Best().to_fp16(from, to, count);
    case DType::kFp32:
      if (count > 0) std::memcpy(to, from, count * sizeof(float));
      return;
  }
}

void ConvertToFloat(DType from_type, const void* from, float* to, size_t count) {
  switch (from_type) {
    case DType::kBf16:
      return Best().from_bf16(from, to, count);
    case DType::kFp16:
      return Best().from_fp16(from, to, count);
    case DType::kFp32:
      if (count > 0) std::memcpy(to, from, count * sizeof(float));
      return;
  }
}

float RoundTo(DType type, float value) {
  switch (type) {
    case DType::kBf16:
      return Bf16ToFloat(FloatToBf16(value));
    case DType::kFp16:
      return Fp16ToFloat(FloatToFp16(value));
    case DType::kFp32:
      return value;
  }
  return value;
}

}  // namespace deepencoder
