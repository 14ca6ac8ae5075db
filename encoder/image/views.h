// Views on the CPU, equal to Pillow's to the bit.
#pragma once

#include <cstdint>
#include <vector>

#include "encoder/image/image.h"
#include "encoder/image/view_plan.h"

namespace deepencoder {

// A square RGB8 view, [side][side][3].
struct View {
  int side;
  std::vector<uint8_t> rgb;
};

// All views of the plan, in its order. The plan must have been made for this image's size.
std::vector<View> RenderViews(const RgbImage& image, const ViewPlan& plan);

}  // namespace deepencoder
