// EXIF and XMP blocks, and turning by what they say.
#include <algorithm>
#include <opencv2/core.hpp>
#include <optional>

#include "encoder/image/orientation.h"
#include "tests/fuzz/fuzz_target.h"

namespace deepencoder::fuzz {

void TryInput(const uint8_t* data, size_t size) {
  const std::optional<int> exif = ExifOrientation(AsBytes(data, size));
  const std::optional<int> xmp = XmpOrientation(AsText(data, size));
  const int orientation = ChooseOrientation(exif, xmp);
  Require(orientation >= 1 && orientation <= 8, "an orientation is one of 1 to 8");

  // A picture whose sides the input's length gives.
  const int width = 1 + static_cast<int>(size % 67), height = 1 + static_cast<int>(size % 41);
  cv::Mat rgb(height, width, CV_8UC3);
  std::fill_n(rgb.ptr(), rgb.total() * 3, uint8_t{77});
  const cv::Mat turned = TurnUpright(rgb, orientation);
  Require(turned.total() == rgb.total(), "turning keeps every pixel");
}

}  // namespace deepencoder::fuzz
