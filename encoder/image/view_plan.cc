#include "encoder/image/view_plan.h"

#include <cmath>
#include <numeric>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace deepencoder {
namespace {

// The image at its own aspect ratio in the middle of a square. Pillow's ImageOps.pad: ratios in double,
// rounding half to even (std::rint in the default rounding mode).
absl::StatusOr<ResizeJob> Letterbox(int width, int height, int side) {
  ResizeJob job{
      .width = side, .height = side, .side = side, .columns = 1, .rows = 1, .left = 0, .top = 0};
  const double w = width, h = height;
  if (width > height) job.height = static_cast<int>(std::rint(h / w * side));
  if (width < height) job.width = static_cast<int>(std::rint(w / h * side));
  if (job.width < 1 || job.height < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("an image of ", width, " x ", height, " pixels is too ",
                     width > height ? "wide" : "tall", ": fitted into ", side, " x ", side, " its ",
                     width > height ? "height" : "width", " rounds to 0"));
  }
  job.left = static_cast<int>(std::rint((side - job.width) * 0.5));
  job.top = static_cast<int>(std::rint((side - job.height) * 0.5));
  return job;
}

ResizeJob Stretch(int side, TileGrid tiles) {
  return {.width = side * tiles.columns,
          .height = side * tiles.rows,
          .side = side,
          .columns = tiles.columns,
          .rows = tiles.rows,
          .left = 0,
          .top = 0};
}

}  // namespace

int ViewPlan::views() const {
  return std::accumulate(jobs.begin(), jobs.end(), 0,
                         [](int sum, const ResizeJob& job) { return sum + job.views(); });
}

absl::StatusOr<ViewPlan> PlanViews(int width, int height, Mode mode, int max_tiles) {
  if (width < 1 || height < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("an image of ", width, " x ", height, " pixels has no views"));
  }
  if (max_tiles < kMinMaxTiles || max_tiles > kMaxMaxTiles) {
    return absl::InvalidArgumentError(absl::StrCat("max_tiles must be ", kMinMaxTiles, " to ",
                                                   kMaxMaxTiles, ", not ", max_tiles));
  }
  const ModeSpec& spec = SpecOf(mode);
  ViewPlan plan{
      .mode = mode, .image_width = width, .image_height = height, .tiles = {}, .jobs = {}};
  if (spec.tile_side > 0) {
    plan.tiles = ChooseTileGrid(width, height, max_tiles, spec.tile_side);
    if (plan.tiles.count() > 0) plan.jobs.push_back(Stretch(spec.tile_side, plan.tiles));
  }
  if (spec.letterbox) {
    const absl::StatusOr<ResizeJob> global = Letterbox(width, height, spec.base_side);
    if (!global.ok()) return global.status();
    plan.jobs.push_back(*global);
  } else {
    plan.jobs.push_back(Stretch(spec.base_side, TileGrid{}));
  }
  return plan;
}

}  // namespace deepencoder
