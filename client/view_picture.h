// The picture of `deepencoder view`: a page, the views made of it, and the rows of the reply they
// become.
#pragma once

#include <string>
#include <vector>

#include "client/view_blocks.h"
#include "client/view_canvas.h"
#include "encoder/image/image.h"
#include "encoder/image/view_plan.h"

namespace deepencoder::client {

// From left to right: the page with the tile grid; the tiles with their token grid, a newline row
// at each line's end; the global view the same way. Below: the sequence from its first row to its
// last, and a legend with numbers of rows. `blocks` have pictures. `height`: of a panel, about,
// pixels.
Canvas DrawViews(const std::string& name, const RgbImage& image, const ViewPlan& plan,
                 const std::vector<Block>& blocks, int height);

}  // namespace deepencoder::client
