// The rows of a reply that no view produces. Standard library only.
#pragma once

#include <cstddef>

#include "encoder/base/dtype.h"
#include "encoder/model/geometry.h"

namespace deepencoder {

// Writes image_newline and view_seperator, kEmbeddingWidth floats each, to their rows of
// `sequence`, which holds layout.rows rows of kEmbeddingWidth elements of `type`. Touches no other
// row, so it may run while views are still being written.
void FillMarkerRows(const SequenceLayout& layout, const float* image_newline,
                    const float* view_separator, DType type, std::byte* sequence);

}  // namespace deepencoder
