#include "encoder/image/image.h"

#include <utility>

namespace deepencoder {

RgbImage::RgbImage(cv::Mat rgb) : rgb_(std::move(rgb)) {
  CV_Assert(rgb_.type() == CV_8UC3 && !rgb_.empty());
  if (!rgb_.isContinuous()) rgb_ = rgb_.clone();
}

}  // namespace deepencoder
