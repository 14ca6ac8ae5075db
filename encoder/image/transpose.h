// Byte matrices: rows <-> columns, for filters that work across rows.
#pragma once

#include <cstddef>
#include <cstdint>

namespace deepencoder {

// to[c * to_stride + r] = from[r * from_stride + c] for r < rows, c < columns. No overlap.
void TransposeBytes(const uint8_t* from, size_t from_stride, size_t rows, size_t columns,
                    uint8_t* to, size_t to_stride);

}  // namespace deepencoder
