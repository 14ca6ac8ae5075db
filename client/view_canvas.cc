#include "client/view_canvas.h"

#include <png.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <opencv2/imgproc.hpp>

#include "encoder/image/image.h"
#include "encoder/image/resize.h"
#include "encoder/weights/atomic_file.h"

namespace deepencoder::client {
namespace {

constexpr int kChannels = 3;
constexpr double kFaceHeight = 30;  // of a line at scale 1, pixels

double ScaleOf(const Font& font) { return font.size / kFaceHeight; }
// Duplex draws each stroke twice, side by side: bold without blots at small sizes.
int FaceOf(const Font& font) {
  return font.bold ? cv::FONT_HERSHEY_DUPLEX : cv::FONT_HERSHEY_SIMPLEX;
}
int ThicknessOf(const Font& font) {
  constexpr double kSizeOfStroke = 20;  // a stroke of a pixel more for every so many pixels of size
  return std::max(1, static_cast<int>(std::lround(font.size / kSizeOfStroke)));
}

uint8_t Mix(uint8_t under, uint8_t over, double opacity) {
  return static_cast<uint8_t>(std::lround(under + (over - under) * opacity));
}

}  // namespace

int TextWidth(std::string_view text, const Font& font) {
  int baseline = 0;
  return cv::getTextSize(std::string(text), FaceOf(font), ScaleOf(font), ThicknessOf(font),
                         &baseline)
      .width;
}

Canvas::Canvas(int width, int height, Colour background) : pixels_(height, width, CV_8UC3) {
  Fill({0, 0, width, height}, background);
}

Colour Canvas::At(int x, int y) const {
  const uint8_t* pixel = pixels_.ptr(y, x);
  return {pixel[0], pixel[1], pixel[2]};
}

void Canvas::Fill(const Box& box, Colour colour, double opacity) {
  const int left = std::max(box.x, 0), right = std::min(box.right(), width());
  const int top = std::max(box.y, 0), bottom = std::min(box.bottom(), height());
  for (int y = top; y < bottom; ++y) {
    uint8_t* pixel = pixels_.ptr(y) + static_cast<std::ptrdiff_t>(left) * kChannels;
    for (int x = left; x < right; ++x, pixel += kChannels) {
      pixel[0] = Mix(pixel[0], colour.red, opacity);
      pixel[1] = Mix(pixel[1], colour.green, opacity);
      pixel[2] = Mix(pixel[2], colour.blue, opacity);
    }
  }
}

void Canvas::Frame(const Box& box, Colour colour, int thickness, double opacity) {
  const int inner = std::max(box.height - 2 * thickness, 0);
  Fill({box.x, box.y, box.width, thickness}, colour, opacity);
  Fill({box.x, box.bottom() - thickness, box.width, thickness}, colour, opacity);
  Fill({box.x, box.y + thickness, thickness, inner}, colour, opacity);
  Fill({box.right() - thickness, box.y + thickness, thickness, inner}, colour, opacity);
}

void Canvas::Paste(int x, int y, const cv::Mat& rgb) {
  const int left = std::max(x, 0), right = std::min(x + rgb.cols, width());
  if (left >= right) return;
  for (int line = std::max(y, 0); line < std::min(y + rgb.rows, height()); ++line) {
    std::memcpy(pixels_.ptr(line, left), rgb.ptr(line - y, left - x),
                static_cast<size_t>(right - left) * kChannels);
  }
}

void Canvas::Write(int x, int y, const std::string& text, const Font& font, Colour colour) {
  int baseline = 0;
  const double scale = ScaleOf(font);
  const int thickness = ThicknessOf(font);
  const cv::Size size = cv::getTextSize("0", FaceOf(font), scale, thickness, &baseline);
  cv::putText(pixels_, text, {x, y + size.height / 2}, FaceOf(font), scale,
              cv::Scalar(colour.red, colour.green, colour.blue), thickness, cv::LINE_AA);
}

void Canvas::WriteRight(int right, int y, const std::string& text, const Font& font,
                        Colour colour) {
  Write(right - TextWidth(text, font), y, text, font, colour);
}

void Canvas::WriteCentred(int middle, int y, const std::string& text, const Font& font,
                          Colour colour) {
  Write(middle - TextWidth(text, font) / 2, y, text, font, colour);
}

cv::Mat Scaled(const cv::Mat& rgb, int width, int height) {
  cv::Mat scaled(height, width, CV_8UC3);
  ResizeBicubic(RgbImage(rgb), width, height, [&scaled](int y, const uint8_t* row) {
    std::memcpy(scaled.ptr(y), row, static_cast<size_t>(scaled.cols) * kChannels);
  });
  return scaled;
}

absl::StatusOr<std::string> EncodePng(const cv::Mat& rgb) {
  png_image image = {};
  image.version = PNG_IMAGE_VERSION;
  image.width = static_cast<png_uint_32>(rgb.cols);
  image.height = static_cast<png_uint_32>(rgb.rows);
  image.format = PNG_FORMAT_RGB;
  const auto stride = static_cast<png_int_32>(rgb.step[0]);
  png_alloc_size_t bytes = 0;  // the call without memory asks for the size
  std::string file;
  if (png_image_write_to_memory(&image, nullptr, &bytes, 0, rgb.ptr(), stride, nullptr) != 0) {
    file.resize(bytes);
    if (png_image_write_to_memory(&image, file.data(), &bytes, 0, rgb.ptr(), stride, nullptr) !=
        0) {
      return file;
    }
  }
  return absl::InternalError(std::string("PNG: ") + image.message);
}

absl::Status WritePng(const std::string& path, const cv::Mat& rgb) {
  const absl::StatusOr<std::string> file = EncodePng(rgb);
  if (!file.ok()) return file.status();
  return WriteFileAtomically(path, *file);
}

}  // namespace deepencoder::client
