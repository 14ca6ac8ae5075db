#include "encoder/model/assemble.h"

#include <cstring>
#include <vector>

#include "encoder/model/config.h"

namespace deepencoder {

void FillMarkerRows(const SequenceLayout& layout, const float* image_newline,
                    const float* view_separator, DType type, std::byte* sequence) {
  const size_t row_bytes = kEmbeddingWidth * SizeOf(type);
  std::vector<std::byte> newline(row_bytes);
  Convert(image_newline, type, newline.data(), kEmbeddingWidth);
  for (const int row : layout.newline_rows) {
    std::memcpy(sequence + row * row_bytes, newline.data(), row_bytes);
  }
  Convert(view_separator, type, sequence + layout.separator_row * row_bytes, kEmbeddingWidth);
}

}  // namespace deepencoder
