#include "encoder/image/transpose.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace deepencoder {
namespace {

constexpr size_t kSide = 16;  // of the blocks that are transposed in registers

// What is left beside or below the blocks.
void TransposeRest(const uint8_t* from, size_t from_stride, size_t rows, size_t columns,
                   uint8_t* to, size_t to_stride) {
  for (size_t r = 0; r < rows; ++r) {
    for (size_t c = 0; c < columns; ++c) to[c * to_stride + r] = from[r * from_stride + c];
  }
}

#if defined(__x86_64__)

// Rounds of interleaving register i with register i + 8 turn the bits of the register's number into
// those of the byte's: four rounds transpose 16 x 16 bytes. With 512 bits, four such blocks side by side.

void TransposeBlock(const uint8_t* from, size_t from_stride, uint8_t* to, size_t to_stride) {
  __m128i a[kSide], b[kSide];
  for (size_t i = 0; i < kSide; ++i) {
    a[i] = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i * from_stride));
  }
  const auto interleave = [](const __m128i* x, __m128i* y) {
    for (size_t i = 0; i < kSide / 2; ++i) {
      y[2 * i] = _mm_unpacklo_epi8(x[i], x[i + kSide / 2]);
      y[2 * i + 1] = _mm_unpackhi_epi8(x[i], x[i + kSide / 2]);
    }
  };
  interleave(a, b);
  interleave(b, a);
  interleave(a, b);
  interleave(b, a);
  for (size_t i = 0; i < kSide; ++i) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i * to_stride), a[i]);
  }
}

#define DEEPENCODER_AVX512 __attribute__((target("avx512f,avx512bw")))

DEEPENCODER_AVX512 inline void Interleave(const __m512i* x, __m512i* y) {
  for (size_t i = 0; i < kSide / 2; ++i) {
    y[2 * i] = _mm512_unpacklo_epi8(x[i], x[i + kSide / 2]);
    y[2 * i + 1] = _mm512_unpackhi_epi8(x[i], x[i + kSide / 2]);
  }
}

// 64 rows of 16 columns -> 16 rows of 64.
DEEPENCODER_AVX512 void TransposeTall(const uint8_t* from, size_t from_stride, uint8_t* to,
                                      size_t to_stride) {
  const auto load = [&](size_t row) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + row * from_stride));
  };
  __m512i a[kSide], b[kSide];
  for (size_t i = 0; i < kSide; ++i) {
    a[i] = _mm512_castsi128_si512(load(i));
    a[i] = _mm512_inserti32x4(a[i], load(i + 16), 1);
    a[i] = _mm512_inserti32x4(a[i], load(i + 32), 2);
    a[i] = _mm512_inserti32x4(a[i], load(i + 48), 3);
  }
  Interleave(a, b);
  Interleave(b, a);
  Interleave(a, b);
  Interleave(b, a);
  for (size_t i = 0; i < kSide; ++i) _mm512_storeu_si512(to + i * to_stride, a[i]);
}

// 16 rows of 64 columns -> 64 rows of 16.
DEEPENCODER_AVX512 void TransposeWide(const uint8_t* from, size_t from_stride, uint8_t* to,
                                      size_t to_stride) {
  __m512i a[kSide], b[kSide];
  for (size_t i = 0; i < kSide; ++i) a[i] = _mm512_loadu_si512(from + i * from_stride);
  Interleave(a, b);
  Interleave(b, a);
  Interleave(a, b);
  Interleave(b, a);
  for (size_t i = 0; i < kSide; ++i) {
    const auto store = [&](size_t row, __m128i bytes) {
      _mm_storeu_si128(reinterpret_cast<__m128i*>(to + row * to_stride), bytes);
    };
    store(i, _mm512_castsi512_si128(a[i]));
    store(i + 16, _mm512_extracti32x4_epi32(a[i], 1));
    store(i + 32, _mm512_extracti32x4_epi32(a[i], 2));
    store(i + 48, _mm512_extracti32x4_epi32(a[i], 3));
  }
}

#else

void TransposeBlock(const uint8_t* from, size_t from_stride, uint8_t* to, size_t to_stride) {
  TransposeRest(from, from_stride, kSide, kSide, to, to_stride);
}

#endif

struct Tile {
  size_t rows, columns;
  void (*transpose)(const uint8_t* from, size_t from_stride, uint8_t* to, size_t to_stride);
};

Tile TileFor(size_t rows, size_t columns) {
#if defined(__x86_64__)
  static const bool avx512 =
      __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512bw") != 0;
  if (avx512 && columns % 64 == 0) return {16, 64, TransposeWide};
  if (avx512 && rows % 64 == 0) return {64, 16, TransposeTall};
#endif
  (void)rows, (void)columns;
  return {kSide, kSide, TransposeBlock};
}

}  // namespace

void TransposeBytes(const uint8_t* from, size_t from_stride, size_t rows, size_t columns,
                    uint8_t* to, size_t to_stride) {
  constexpr size_t kLine = 64, kAhead = 4 * kLine;  // of the cache, bytes
  const Tile tile = TileFor(rows, columns);
  const size_t tiled_rows = rows / tile.rows * tile.rows;
  const size_t tiled_columns = columns / tile.columns * tile.columns;
  for (size_t c = 0; c < tiled_columns; c += tile.columns) {
    // More rows side by side than the processor's own prefetching follows.
    for (size_t r = 0; c % kLine == 0 && c + kAhead < columns && r < rows; ++r) {
      __builtin_prefetch(from + r * from_stride + c + kAhead);
    }
    for (size_t r = 0; r < tiled_rows; r += tile.rows) {
      tile.transpose(from + r * from_stride + c, from_stride, to + c * to_stride + r, to_stride);
    }
  }
  TransposeRest(from + tiled_columns, from_stride, tiled_rows, columns - tiled_columns,
                to + tiled_columns * to_stride, to_stride);
  TransposeRest(from + tiled_rows * from_stride, from_stride, rows - tiled_rows, columns,
                to + tiled_rows, to_stride);
}

}  // namespace deepencoder
