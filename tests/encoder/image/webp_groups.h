// A lossless WebP file of many groups of prefix codes, which cost its decoder far more than its pixels.
#pragma once

#include "tests/encoder/image/test_files.h"

namespace deepencoder {

// Black, 1,024 pixels wide, 4 high for each 256 groups, of which it has a multiple of 256 up to 65,536.
// Each block of 4 x 4 pixels has its own group.
FileBytes WebpOfGroups(int groups);

}  // namespace deepencoder
