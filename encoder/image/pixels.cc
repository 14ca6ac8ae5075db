#include "encoder/image/pixels.h"

#include <algorithm>

namespace deepencoder {

void CompositeOnWhite(const uint8_t* rgba, uint8_t* rgb, size_t pixels) {
  for (size_t i = 0; i < pixels; ++i) {
    for (size_t c = 0; c < 3; ++c) rgb[3 * i + c] = OnWhite(rgba[4 * i + c], rgba[4 * i + 3]);
  }
}

void CmykToRgb(const uint8_t* cmyk, bool inverted, uint8_t* rgb, size_t pixels) {
  const uint8_t flip = inverted ? 0xFF : 0;
  for (size_t i = 0; i < pixels; ++i) {
    const int32_t n = 255 - (cmyk[4 * i + 3] ^ flip);
    for (size_t c = 0; c < 3; ++c) {
      const int32_t ink = cmyk[4 * i + c] ^ flip;
      const auto taken = static_cast<int32_t>(DivideBy255(static_cast<uint32_t>(ink * n)));
      rgb[3 * i + c] = static_cast<uint8_t>(std::max(n - taken, 0));
    }
  }
}

Palette GreyIfRamp(const Palette& palette, size_t entries) {
  Palette grey;
  for (size_t i = 0; i < grey.size(); ++i) grey[i] = cv::Vec3b::all(static_cast<uint8_t>(i));
  return std::equal(palette.begin(), palette.begin() + entries, grey.begin()) ? grey : palette;
}

void YcbcrToRgb(const uint8_t* ycbcr, uint8_t* rgb, size_t pixels) {
  // Rounded as Pillow's tables are: towards zero, after a half is added.
  const auto product = [](double factor, int value) {
    // NOLINTNEXTLINE(bugprone-incorrect-roundings): of negative ones Pillow's, too
    return static_cast<int>(factor * (value - 128) * 64 + 0.5);
  };
  const auto clip = [](int value) { return static_cast<uint8_t>(std::clamp(value, 0, 255)); };
  for (size_t i = 0; i < pixels; ++i, ycbcr += 3, rgb += 3) {
    const int y = ycbcr[0], cb = ycbcr[1], cr = ycbcr[2];
    rgb[0] = clip(y + (product(1.402, cr) >> 6));
    rgb[1] = clip(y + ((product(-0.34414, cb) + product(-0.71414, cr)) >> 6));
    rgb[2] = clip(y + (product(1.772, cb) >> 6));
  }
}

}  // namespace deepencoder
