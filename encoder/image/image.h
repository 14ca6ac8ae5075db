// A decoded picture.
#pragma once

#include <cstddef>
#include <cstdint>
#include <opencv2/core.hpp>

namespace deepencoder {

// RGB, 8 bits a channel, upright (EXIF orientation applied). CV_8UC3 in R, G, B order, rows contiguous;
// copies share the pixels. Never empty.
class RgbImage {
 public:
  explicit RgbImage(cv::Mat rgb);  // requires CV_8UC3, not empty; made contiguous

  int width() const { return rgb_.cols; }
  int height() const { return rgb_.rows; }
  const uint8_t* data() const { return rgb_.ptr(); }
  size_t bytes() const { return rgb_.total() * 3; }
  const cv::Mat& mat() const { return rgb_; }

 private:
  cv::Mat rgb_;
};

}  // namespace deepencoder
