#include "encoder/image/resample_kernel.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace deepencoder {
namespace {

constexpr int32_t kHalf = 1 << (kWeightBits - 1);

// ---------------------------------------------------------------- portable

size_t PlainWords(size_t taps) { return taps; }

void PlainPack(std::span<const int32_t> weights, int32_t* packed) {
  std::copy(weights.begin(), weights.end(), packed);
}

void PlainRun(const uint8_t* src, size_t stride, size_t taps, const int32_t* packed, uint8_t* out,
              size_t count) {
  constexpr size_t kBlock = 64;
  for (size_t at = 0; at < count; at += kBlock) {
    const size_t n = std::min(kBlock, count - at);
    std::array<int32_t, kBlock> sum;
    sum.fill(kHalf);
    for (size_t k = 0; k < taps; ++k) {
      const uint8_t* row = src + k * stride + at;
      for (size_t i = 0; i < n; ++i) sum[i] += packed[k] * row[i];
    }
    for (size_t i = 0; i < n; ++i) {
      out[at + i] = static_cast<uint8_t>(std::clamp(sum[i] >> kWeightBits, 0, 255));
    }
  }
}

#if defined(__x86_64__)

int32_t Pair(int32_t low, int32_t high) {
  return static_cast<int32_t>(static_cast<uint32_t>(low & 0xFFFF) | static_cast<uint32_t>(high)
                                                                        << 16);
}

// ---------------------------------------------------------------- AVX2
// Two taps a step: vpmaddwd multiplies pairs of 16-bit numbers and adds them. A weight is split into
// high * 2^12 + low, with low in [-2^11, 2^11).
constexpr int kLowBits = 12;

size_t Avx2Words(size_t taps) { return (taps + 1) / 2 * 2; }

void Avx2Pack(std::span<const int32_t> weights, int32_t* packed) {
  const auto low = [](int32_t w) {
    return ((w + (1 << (kLowBits - 1))) & ((1 << kLowBits) - 1)) - (1 << (kLowBits - 1));
  };
  for (size_t k = 0; k < weights.size(); k += 2) {
    const int32_t w0 = weights[k], w1 = k + 1 < weights.size() ? weights[k + 1] : 0;
    packed[k] = Pair(low(w0), low(w1));
    packed[k + 1] = Pair((w0 - low(w0)) >> kLowBits, (w1 - low(w1)) >> kLowBits);
  }
}

// 16 columns.
__attribute__((target("avx2"), always_inline)) inline void Avx2Columns(const uint8_t* src,
                                                                       size_t stride, size_t taps,
                                                                       const int32_t* packed,
                                                                       uint8_t* out) {
  __m256i low0 = _mm256_set1_epi32(kHalf), low1 = low0;
  __m256i high0 = _mm256_setzero_si256(), high1 = high0;
  for (size_t k = 0; k < taps; k += 2) {
    const uint8_t* row = src + k * stride;
    const __m128i a = _mm_loadu_si128(reinterpret_cast<const __m128i*>(row));
    const __m128i b =
        k + 1 < taps ? _mm_loadu_si128(reinterpret_cast<const __m128i*>(row + stride)) : a;
    const __m256i pairs0 = _mm256_cvtepu8_epi16(_mm_unpacklo_epi8(a, b));
    const __m256i pairs1 = _mm256_cvtepu8_epi16(_mm_unpackhi_epi8(a, b));
    const __m256i low = _mm256_set1_epi32(packed[k]), high = _mm256_set1_epi32(packed[k + 1]);
    low0 = _mm256_add_epi32(low0, _mm256_madd_epi16(pairs0, low));
    low1 = _mm256_add_epi32(low1, _mm256_madd_epi16(pairs1, low));
    high0 = _mm256_add_epi32(high0, _mm256_madd_epi16(pairs0, high));
    high1 = _mm256_add_epi32(high1, _mm256_madd_epi16(pairs1, high));
  }
  const __m256i sum0 =
      _mm256_srai_epi32(_mm256_add_epi32(low0, _mm256_slli_epi32(high0, kLowBits)), kWeightBits);
  const __m256i sum1 =
      _mm256_srai_epi32(_mm256_add_epi32(low1, _mm256_slli_epi32(high1, kLowBits)), kWeightBits);
  // Packing works within halves: [0-3 8-11 | 4-7 12-15] -> in order.
  const __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(sum0, sum1), 0b11011000);
  const __m128i bytes =
      _mm_packus_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(out), bytes);
}

__attribute__((target("avx2"))) void Avx2Run(const uint8_t* src, size_t stride, size_t taps,
                                             const int32_t* packed, uint8_t* out, size_t count) {
  constexpr size_t kColumns = 16;
  if (count >= kColumns) {
    for (size_t at = 0; at + kColumns <= count; at += kColumns) {
      Avx2Columns(src + at, stride, taps, packed, out + at);
    }
    // The last ones once more with those before them.
    const size_t last = count - kColumns;
    if (count % kColumns != 0) Avx2Columns(src + last, stride, taps, packed, out + last);
    return;
  }
  std::vector<uint8_t> padded(taps * kColumns);
  for (size_t k = 0; k < taps; ++k) std::memcpy(&padded[k * kColumns], src + k * stride, count);
  std::array<uint8_t, kColumns> result;
  Avx2Columns(padded.data(), kColumns, taps, packed, result.data());
  std::memcpy(out, result.data(), count);
}

// ---------------------------------------------------------------- AVX-512 VNNI
// Four taps a step: vpdpbusd multiplies four unsigned by four signed bytes and adds all to a sum. A weight
// is split into signed bytes b2 * 2^16 + b1 * 2^8 + b0.

size_t VnniWords(size_t taps) { return (taps + 3) / 4 * 3; }

void VnniPack(std::span<const int32_t> weights, int32_t* packed) {
  for (size_t k = 0; k < weights.size(); k += 4, packed += 3) {
    std::array<uint32_t, 3> words{};
    for (size_t i = 0; i < 4 && k + i < weights.size(); ++i) {
      int32_t rest = weights[k + i];
      for (uint32_t& word : words) {
        const auto byte = static_cast<int8_t>(rest & 0xFF);
        word |= static_cast<uint32_t>(static_cast<uint8_t>(byte)) << (8 * i);
        rest = (rest - byte) >> 8;
      }
    }
    std::memcpy(packed, words.data(), sizeof(words));
  }
}

// Up to 64 columns, those of `mask`.
__attribute__((target("avx512f,avx512bw,avx512vnni"), always_inline)) inline void VnniColumns(
    const uint8_t* src, size_t stride, size_t taps, const int32_t* packed, uint8_t* out,
    __mmask64 mask) {
  __m512i sum[3][4];  // of each byte of the weights, of each quarter of the columns
  for (int j = 0; j < 4; ++j) {
    sum[0][j] = _mm512_set1_epi32(kHalf);
    sum[1][j] = sum[2][j] = _mm512_setzero_si512();
  }
  for (size_t k = 0; k < taps; k += 4, packed += 3) {
    // Past the last tap its row is read again, with weight 0.
    const uint8_t* row = src + k * stride;
    const size_t left = taps - 1 - k;
    const __m512i r0 = _mm512_maskz_loadu_epi8(mask, row);
    const __m512i r1 = _mm512_maskz_loadu_epi8(mask, row + std::min<size_t>(left, 1) * stride);
    const __m512i r2 = _mm512_maskz_loadu_epi8(mask, row + std::min<size_t>(left, 2) * stride);
    const __m512i r3 = _mm512_maskz_loadu_epi8(mask, row + std::min<size_t>(left, 3) * stride);
    const __m512i a = _mm512_unpacklo_epi8(r0, r1), b = _mm512_unpackhi_epi8(r0, r1);
    const __m512i c = _mm512_unpacklo_epi8(r2, r3), d = _mm512_unpackhi_epi8(r2, r3);
    const __m512i taps4[4] = {_mm512_unpacklo_epi16(a, c), _mm512_unpackhi_epi16(a, c),
                              _mm512_unpacklo_epi16(b, d), _mm512_unpackhi_epi16(b, d)};
    for (int s = 0; s < 3; ++s) {
      const __m512i weights = _mm512_set1_epi32(packed[s]);
      for (int j = 0; j < 4; ++j) sum[s][j] = _mm512_dpbusd_epi32(sum[s][j], taps4[j], weights);
    }
  }
  __m512i result[4];
  for (int j = 0; j < 4; ++j) {
    const __m512i total =
        _mm512_add_epi32(_mm512_add_epi32(sum[0][j], _mm512_slli_epi32(sum[1][j], 8)),
                         _mm512_slli_epi32(sum[2][j], 16));
    result[j] = _mm512_srai_epi32(total, kWeightBits);
  }
  // Packing undoes the unpacking, and clamps.
  const __m512i bytes = _mm512_packus_epi16(_mm512_packs_epi32(result[0], result[1]),
                                            _mm512_packs_epi32(result[2], result[3]));
  _mm512_mask_storeu_epi8(out, mask, bytes);
}

__attribute__((target("avx512f,avx512bw,avx512vnni"))) void VnniRun(const uint8_t* src,
                                                                    size_t stride, size_t taps,
                                                                    const int32_t* packed,
                                                                    uint8_t* out, size_t count) {
  constexpr size_t kColumns = 64;
  for (size_t at = 0; at < count; at += kColumns) {
    const size_t n = std::min(kColumns, count - at);
    const __mmask64 mask = ~uint64_t{0} >> (kColumns - n);
    VnniColumns(src + at, stride, taps, packed, out + at, mask);
  }
}

#endif  // __x86_64__

constexpr ResampleKernel kKernels[] = {
    {"portable", PlainWords, PlainPack, PlainRun},
#if defined(__x86_64__)
    {"avx2", Avx2Words, Avx2Pack, Avx2Run},
    {"avx512vnni", VnniWords, VnniPack, VnniRun},
#endif
};

// Each kernel's CPUs can run those before it too.
size_t CountRunnable() {
#if defined(__x86_64__)
  if (!__builtin_cpu_supports("avx2")) return 1;
  const bool vnni = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                    __builtin_cpu_supports("avx512vnni");
  return vnni ? 3 : 2;
#else
  return 1;
#endif
}

}  // namespace

std::span<const ResampleKernel> ResampleKernels() {
  static const size_t count = CountRunnable();
  return {kKernels, count};
}

}  // namespace deepencoder
