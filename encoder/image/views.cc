#include "encoder/image/views.h"

#include <algorithm>
#include <cstring>

#include "encoder/image/resize.h"

namespace deepencoder {
namespace {

constexpr size_t kChannels = 3;

// Pastes row y of the resampled image into the views it crosses: a letterboxed one with a border, or
// `columns` tiles side by side.
void PasteRow(const ResizeJob& job, int y, const uint8_t* row, std::span<View> views) {
  const int line = job.top + y;
  const auto width = static_cast<size_t>(std::min(job.width, job.side));
  for (int column = 0; column < job.columns; ++column) {
    View& view = views[static_cast<size_t>(line / job.side * job.columns + column)];
    const auto pixel = static_cast<size_t>(line % job.side * job.side + job.left);
    std::memcpy(view.rgb.data() + pixel * kChannels,
                row + static_cast<size_t>(column * job.side) * kChannels, width * kChannels);
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
      views.push_back({job.side, std::vector<uint8_t>(bytes, kLetterboxGray)});
    }
    const std::span<View> of_job(views.begin() + first, views.end());
    ResizeBicubic(image, job.width, job.height,
                  [&](int y, const uint8_t* row) { PasteRow(job, y, row, of_job); });
  }
  return views;
}

}  // namespace deepencoder
