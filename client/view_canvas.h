// A picture to draw on, and PNG files.
#pragma once

#include <cstdint>
#include <opencv2/core.hpp>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace deepencoder::client {

struct Colour {
  uint8_t red = 0, green = 0, blue = 0;
  bool operator==(const Colour&) const = default;
};

// Pixels; the right and lower edges are not part of it.
struct Box {
  int x = 0, y = 0, width = 0, height = 0;
  int right() const { return x + width; }
  int bottom() const { return y + height; }
};

struct Font {
  double size = 14;  // about the height of a line of it, pixels
  bool bold = false;
};
// Pixels that `text` takes. Only ASCII is drawn as it is written.
int TextWidth(std::string_view text, const Font& font);

// RGB, 8 bits a channel. What lies outside is cut off.
class Canvas {
 public:
  // width, height >= 1.
  Canvas(int width, int height, Colour background);

  int width() const { return pixels_.cols; }
  int height() const { return pixels_.rows; }
  const cv::Mat& pixels() const { return pixels_; }  // CV_8UC3, rows contiguous
  Colour At(int x, int y) const;

  // opacity 0..1.
  void Fill(const Box& box, Colour colour, double opacity = 1);
  // The border of the box, `thickness` pixels on its inside.
  void Frame(const Box& box, Colour colour, int thickness = 1, double opacity = 1);
  void Paste(int x, int y, const cv::Mat& rgb);  // CV_8UC3
  // `x`: left end; `y`: the line's middle.
  void Write(int x, int y, const std::string& text, const Font& font, Colour colour);
  void WriteRight(int right, int y, const std::string& text, const Font& font, Colour colour);
  void WriteCentred(int middle, int y, const std::string& text, const Font& font, Colour colour);

 private:
  cv::Mat pixels_;
};

// `rgb` (CV_8UC3, rows contiguous) with its sides scaled to width x height, both at least 1.
cv::Mat Scaled(const cv::Mat& rgb, int width, int height);

// Errors: INTERNAL (libpng's words).
absl::StatusOr<std::string> EncodePng(const cv::Mat& rgb);
// Errors: as EncodePng, and those of writing, which start with the path.
absl::Status WritePng(const std::string& path, const cv::Mat& rgb);

}  // namespace deepencoder::client
