// How much memory a Zstandard stream makes its decoder take.
#pragma once

#include <cstdint>

#include "encoder/image/bytes.h"

namespace deepencoder {

// The largest window, bytes, of the frames that follow one another at the start of `stream` (RFC 8878,
// 3.1.1), found without decoding: a decoder takes that much memory, however small the picture. UINT64_MAX
// if it does not begin with a frame, or one of a version before the RFC's follows. Where a later frame is
// broken the decoder will stop, and so does this.
uint64_t LargestZstdWindow(Bytes stream);

}  // namespace deepencoder
