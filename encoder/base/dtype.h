// Element types of weights, activations and replies. Standard library only: the CUDA backend shares
// it.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace deepencoder {

enum class DType : uint8_t { kBf16 = 0, kFp16 = 1, kFp32 = 2 };

// Bytes of one element.
constexpr size_t SizeOf(DType type) { return type == DType::kFp32 ? 4 : 2; }

// "bf16", "fp16", "fp32".
std::string_view Name(DType type);
std::optional<DType> ParseDType(std::string_view name);

// Bits of a bfloat16, the upper half of a float.
constexpr float Bf16ToFloat(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}
// Round to nearest even; NaN stays NaN.
constexpr uint16_t FloatToBf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
}

// IEEE binary16. Round to nearest even, overflow to infinity, subnormals kept.
float Fp16ToFloat(uint16_t bits);
uint16_t FloatToFp16(float value);

// Converts `count` elements; `from` and `to` must not overlap and need no alignment beyond their
// type's.
void Convert(const float* from, DType to_type, void* to, size_t count);
void ConvertToFloat(DType from_type, const void* from, float* to, size_t count);

// `value` as it is after being stored in `type`.
float RoundTo(DType type, float value);

}  // namespace deepencoder
