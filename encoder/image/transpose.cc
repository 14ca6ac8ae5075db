#include "encoder/image/transpose.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace deepencoder {
namespace {

constexpr size_t kSide = 16;

#if defined(__SSE2__)

// 16 x 16. Four rounds of interleaving row i with row i + 8 turn row number bits into column number bits.
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

#else

void TransposeBlock(const uint8_t* from, size_t from_stride, uint8_t* to, size_t to_stride) {
  for (size_t r = 0; r < kSide; ++r) {
    for (size_t c = 0; c < kSide; ++c) to[c * to_stride + r] = from[r * from_stride + c];
  }
}

#endif

}  // namespace

void TransposeBytes(const uint8_t* from, size_t from_stride, size_t rows, size_t columns,
                    uint8_t* to, size_t to_stride) {
  const size_t block_rows = rows / kSide * kSide, block_columns = columns / kSide * kSide;
  for (size_t c = 0; c < block_columns; c += kSide) {
    for (size_t r = 0; r < block_rows; r += kSide) {
      TransposeBlock(from + r * from_stride + c, from_stride, to + c * to_stride + r, to_stride);
    }
  }
  for (size_t r = 0; r < rows; ++r) {  // what is left at the right and at the bottom
    for (size_t c = r < block_rows ? block_columns : 0; c < columns; ++c) {
      to[c * to_stride + r] = from[r * from_stride + c];
    }
  }
}

}  // namespace deepencoder
