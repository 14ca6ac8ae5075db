#include "encoder/base/dtype.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

namespace deepencoder {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

float FromBits(uint32_t bits) { return std::bit_cast<float>(bits); }
uint32_t Bits(float value) { return std::bit_cast<uint32_t>(value); }

// A half by its definition, apart from NaN.
float HalfByDefinition(uint16_t bits) {
  const int exponent = (bits >> 10) & 31, fraction = bits & 1023;
  const float sign = (bits & 0x8000) != 0 ? -1.0f : 1.0f;
  if (exponent == 31) return sign * kInfinity;
  if (exponent == 0) return sign * std::ldexp(static_cast<float>(fraction), -24);
  return sign * std::ldexp(static_cast<float>(1024 + fraction), exponent - 25);
}

bool IsHalfNan(uint16_t bits) { return (bits & 0x7FFF) > 0x7C00; }
bool IsBf16Nan(uint16_t bits) { return (bits & 0x7FFF) > 0x7F80; }

// Floats of every exponent and sign, NaN and infinity among them, about a million.
std::vector<float> ManyFloats() {
  std::vector<float> floats;
  for (uint64_t bits = 0; bits < (uint64_t{1} << 32); bits += 4099) {
    floats.push_back(FromBits(static_cast<uint32_t>(bits)));
  }
  for (const float special : {kInfinity, -kInfinity, 0.0f, -0.0f, 65504.0f, 65519.996f, 65520.0f}) {
    floats.push_back(special);
  }
  return floats;
}

TEST(DTypeTest, NamesAndSizes) {
  for (const DType type : {DType::kBf16, DType::kFp16, DType::kFp32}) {
    EXPECT_EQ(ParseDType(Name(type)), type);
  }
  EXPECT_EQ(Name(DType::kBf16), "bf16");
  EXPECT_EQ(ParseDType("bfloat16"), std::nullopt);
  EXPECT_EQ(ParseDType(""), std::nullopt);
  EXPECT_EQ(SizeOf(DType::kBf16), 2u);
  EXPECT_EQ(SizeOf(DType::kFp16), 2u);
  EXPECT_EQ(SizeOf(DType::kFp32), 4u);
}

TEST(DTypeTest, EveryHalfIsReadByDefinitionAndComesBack) {
  for (uint32_t h = 0; h <= 0xFFFF; ++h) {
    const auto bits = static_cast<uint16_t>(h);
    if (IsHalfNan(bits)) {
      EXPECT_TRUE(std::isnan(Fp16ToFloat(bits))) << h;
      EXPECT_EQ(FloatToFp16(Fp16ToFloat(bits)), bits | 0x200) << h;  // made quiet
      continue;
    }
    ASSERT_EQ(Bits(Fp16ToFloat(bits)), Bits(HalfByDefinition(bits))) << h;
    ASSERT_EQ(FloatToFp16(Fp16ToFloat(bits)), bits) << h;
  }
}

TEST(DTypeTest, HalfRoundsToNearestEvenBetweenAllNeighbours) {
  for (uint16_t h = 0; h < 0x7C00; ++h) {
    // The upper neighbour of 65504 for rounding is 2^16, which is stored as infinity.
    const double low = Fp16ToFloat(h), high = h == 0x7BFF ? 65536.0 : Fp16ToFloat(h + 1);
    const auto middle = static_cast<float>((low + high) / 2);  // exact
    const auto even = static_cast<uint16_t>((h & 1) == 0 ? h : h + 1);
    ASSERT_EQ(FloatToFp16(middle), even) << h;
    ASSERT_EQ(FloatToFp16(-middle), 0x8000 | even) << h;
    ASSERT_EQ(FloatToFp16(std::nextafterf(middle, 0.0f)), h);
    ASSERT_EQ(FloatToFp16(std::nextafterf(middle, kInfinity)), h + 1);
  }
  EXPECT_EQ(FloatToFp16(1e30f), 0x7C00);
  EXPECT_EQ(FloatToFp16(-kInfinity), 0xFC00);
  EXPECT_EQ(FloatToFp16(FromBits(1)), 0);  // a subnormal float
}

TEST(DTypeTest, Bf16RoundsToNearestEvenBetweenAllNeighbours) {
  for (uint32_t b = 0; b < 0x7F80; ++b) {
    const float middle = FromBits(b << 16 | 0x8000);
    const uint32_t even = (b & 1) == 0 ? b : b + 1;
    ASSERT_EQ(FloatToBf16(Bf16ToFloat(static_cast<uint16_t>(b))), b);
    ASSERT_EQ(FloatToBf16(middle), even) << b;
    ASSERT_EQ(FloatToBf16(-middle), 0x8000 | even) << b;
    ASSERT_EQ(FloatToBf16(FromBits(Bits(middle) - 1)), b);
    ASSERT_EQ(FloatToBf16(FromBits(Bits(middle) + 1)), b + 1);
  }
  EXPECT_EQ(FloatToBf16(kInfinity), 0x7F80);
  EXPECT_TRUE(IsBf16Nan(FloatToBf16(FromBits(0x7F800001))));  // would round to infinity
  EXPECT_TRUE(IsBf16Nan(FloatToBf16(FromBits(0xFFFFFFFF))));
}

// The vector loops agree with the scalar functions bit for bit, at any length and address.
TEST(DTypeTest, ConvertEqualsScalar) {
  const std::vector<float> floats = ManyFloats();
  for (const DType type : {DType::kBf16, DType::kFp16, DType::kFp32}) {
    for (const size_t count : {size_t{0}, size_t{1}, size_t{7}, size_t{8}, floats.size()}) {
      std::vector<std::byte> out(count * SizeOf(type) + 1, std::byte{0xAA});
      Convert(floats.data() + (floats.size() - count), type, out.data(), count);
      ASSERT_EQ(out.back(), std::byte{0xAA}) << "wrote past the end";
      for (size_t i = 0; i < count; ++i) {
        const float from = floats[floats.size() - count + i];
        if (type == DType::kFp32) {
          uint32_t bits = 0;
          std::memcpy(&bits, &out[4 * i], 4);
          ASSERT_EQ(bits, Bits(from));
          continue;
        }
        uint16_t bits = 0;
        std::memcpy(&bits, &out[2 * i], 2);
        ASSERT_EQ(bits, type == DType::kBf16 ? FloatToBf16(from) : FloatToFp16(from))
            << Name(type) << " of bits " << Bits(from);
      }
    }
  }
}

TEST(DTypeTest, ConvertToFloatEqualsScalarAndNeedsNoAlignment) {
  constexpr size_t kCount = 65536;
  std::vector<std::byte> stored(1 + 2 * kCount);
  for (size_t i = 0; i < kCount; ++i) {
    const auto bits = static_cast<uint16_t>(i);
    std::memcpy(&stored[1 + 2 * i], &bits, 2);
  }
  std::vector<float> out(kCount);
  ConvertToFloat(DType::kBf16, stored.data() + 1, out.data(), kCount);
  for (size_t i = 0; i < kCount; ++i) ASSERT_EQ(Bits(out[i]), static_cast<uint32_t>(i) << 16);
  ConvertToFloat(DType::kFp16, stored.data() + 1, out.data(), kCount);
  for (size_t i = 0; i < kCount; ++i) {
    ASSERT_EQ(Bits(out[i]), Bits(Fp16ToFloat(static_cast<uint16_t>(i)))) << i;
  }
  ConvertToFloat(DType::kFp32, stored.data() + 1, out.data(), kCount / 2);
  for (size_t i = 0; i < kCount / 2; ++i) {
    uint32_t bits = 0;
    std::memcpy(&bits, &stored[1 + 4 * i], 4);
    ASSERT_EQ(Bits(out[i]), bits) << i;
  }
}

TEST(DTypeTest, RoundTo) {
  const float third = 1.0f / 3.0f;
  EXPECT_EQ(RoundTo(DType::kFp32, third), third);
  EXPECT_EQ(RoundTo(DType::kBf16, third), 0.333984375f);
  EXPECT_EQ(RoundTo(DType::kFp16, third), 0.333251953125f);
  EXPECT_EQ(RoundTo(DType::kFp16, 70000.0f), kInfinity);
}

}  // namespace
}  // namespace deepencoder
