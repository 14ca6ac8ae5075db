// TIFF files whose tiles, or strips, all are one stretch of the file.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tests/encoder/image/test_files.h"

namespace deepencoder {

// Of 8 bits a sample. Constants are those of tiff.h.
struct SharedTiff {
  uint32_t width, height;
  uint32_t tile_width = 0, tile_height = 0;  // 0: strips of one row
  uint16_t samples = 1;
  uint16_t photometric = 1;  // minimum is black
  uint16_t compression = 1;  // none
  uint16_t planar = 1;       // chunky
  uint16_t subsampling = 1;  // of YCbCr, both ways
};

FileBytes EncodeSharedTiff(const SharedTiff& tiff, const FileBytes& data);

// As many zeros by deflate, for compression 8.
FileBytes DeflatedZeros(size_t bytes);

}  // namespace deepencoder
