// How a picture must be turned to stand upright: EXIF's tag 0x0112, else XMP's tiff:Orientation.
//
// Metadata never makes a picture fail: a block that is broken or holds another value than 1..8 counts
// as upright, as in Pillow's exif_transpose.
#pragma once

#include <opencv2/core.hpp>
#include <optional>
#include <string_view>

#include "encoder/image/bytes.h"

namespace deepencoder {

inline constexpr int kUpright = 1;

// Value of the tag in IFD 0 of an EXIF block (TIFF structure, with or without "Exif\0\0" before it).
// nullopt if the block is broken or has no such tag; not checked to be 1..8.
std::optional<int> ExifOrientation(Bytes exif);

// The digit after tiff:Orientation, written as attribute or as element.
std::optional<int> XmpOrientation(std::string_view xmp);

// 1..8: EXIF's value if the tag is there, else XMP's; kUpright where that is absent or out of range.
int ChooseOrientation(std::optional<int> exif, std::optional<int> xmp);

// Turns by `orientation` (1..8). The result may share the pixels of `rgb`, which may have been turned
// in place.
cv::Mat TurnUpright(cv::Mat rgb, int orientation);

}  // namespace deepencoder
