#include "encoder/image/views.h"

#include <algorithm>
#include <span>

#include "encoder/image/resize.h"

namespace deepencoder {
namespace {

constexpr size_t kChannels = 3;

// Appends row y of the resampled image to the views it crosses: a letterboxed one, or `columns` tiles side
// by side. Rows come from the top down, so what a view lacks before this one is border.
void AppendRow(const ResizeJob& job, int y, const uint8_t* row, std::span<View> views) {
  const auto side = static_cast<size_t>(job.side), columns = static_cast<size_t>(job.columns);
  const auto line = static_cast<size_t>(job.top + y);
  const size_t row_bytes = std::min(static_cast<size_t>(job.width), side) * kChannels;
  const size_t pixel = line % side * side + static_cast<size_t>(job.left);
  for (size_t column = 0; column < columns; ++column, row += row_bytes) {
    std::vector<uint8_t>& rgb = views[line / side * columns + column].rgb;
    rgb.resize(pixel * kChannels, kLetterboxGray);
    rgb.insert(rgb.end(), row, row + row_bytes);
  }
}

}  // namespace

std::vector<View> RenderViews(const RgbImage& image, const ViewPlan& plan) {
  std::vector<View> views;
  views.reserve(static_cast<size_t>(plan.views()));
  for (const ResizeJob& job : plan.jobs) {
    const auto first = static_cast<std::ptrdiff_t>(views.size());
    const size_t bytes = static_cast<size_t>(job.side) * static_cast<size_t>(job.side) * kChannels;
    for (int i = 0; i < job.views(); ++i) {
      views.push_back({job.side, {}});
      views.back().rgb.reserve(bytes);
    }
    const std::span<View> of_job(views.begin() + first, views.end());
    ResizeBicubic(image, job.width, job.height,
                  [&](int y, const uint8_t* row) { AppendRow(job, y, row, of_job); });
    for (View& view : of_job) view.rgb.resize(bytes, kLetterboxGray);
  }
  return views;
}

}  // namespace deepencoder
