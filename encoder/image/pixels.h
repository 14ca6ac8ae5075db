// Rows of other pixel types -> RGB8, with Pillow's arithmetic.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <opencv2/core.hpp>

namespace deepencoder {

// round(value / 255) for value <= 255 * 255, Pillow's DIV255.
constexpr uint32_t DivideBy255(uint32_t value) {
  const uint32_t t = value + 128;
  return ((t >> 8) + t) >> 8;
}

// Opaque colour of an RGBA pixel on a white background, as Pillow's Image.paste with the alpha as mask:
// round((c * a + 255 * (255 - a)) / 255).
constexpr uint8_t OnWhite(uint8_t colour, uint8_t alpha) {
  return static_cast<uint8_t>(DivideBy255(uint32_t{colour} * alpha + 255u * (255u - alpha)));
}

// RGBA -> RGB on white.
void CompositeOnWhite(const uint8_t* rgba, uint8_t* rgb, size_t pixels);

// CMYK -> RGB without a colour profile: n = 255 - K, X = max(n - round(C * n / 255), 0).
// `inverted`: stored as 255 - value, as JPEG files do.
void CmykToRgb(const uint8_t* cmyk, bool inverted, uint8_t* rgb, size_t pixels);

using Palette = std::array<cv::Vec3b, 256>;

// A palette of which `entries` are in the file, the others black. Pillow takes one whose entries are the grey of
// their indices for none: then all indices are grey levels.
Palette GreyIfRamp(const Palette& palette, size_t entries);

// YCbCr of full range (JFIF) -> RGB. Pillow's products have 6 binary places; libjpeg's and libtiff's have 16.
void YcbcrToRgb(const uint8_t* ycbcr, uint8_t* rgb, size_t pixels);

}  // namespace deepencoder
