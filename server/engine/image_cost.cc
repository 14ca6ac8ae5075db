#include "server/engine/image_cost.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "encoder/image/view_plan.h"
#include "encoder/model/assemble.h"
#include "server/engine/image_task.h"

namespace deepencoder {
namespace {

absl::Status CheckRaw(const RawPixels& raw, const DecodeOptions& limits) {
  if (raw.width < 1 || raw.height < 1) {
    return absl::InvalidArgumentError(absl::StrCat("raw image of ", raw.width, " x ", raw.height,
                                                   " pixels: both must be at least 1"));
  }
  const int64_t pixels = int64_t{raw.width} * raw.height;
  if (pixels > limits.max_pixels) {
    return absl::InvalidArgumentError(absl::StrCat("raw image of ", raw.width, " x ", raw.height,
                                                   " has ", pixels, " pixels; the limit is ",
                                                   limits.max_pixels));
  }
  if (static_cast<int64_t>(raw.rgb.bytes.size()) != 3 * pixels) {
    return absl::InvalidArgumentError(absl::StrCat("raw image of ", raw.width, " x ", raw.height,
                                                   " must have ", 3 * pixels, " bytes; it has ",
                                                   raw.rgb.bytes.size()));
  }
  return absl::OkStatus();
}

// What decoding starts from.
struct Source {
  int width, height;
  int64_t bytes;  // held until the image is decoded
};

absl::StatusOr<Source> SourceOf(const EncodeJob& job, const DecodeOptions& limits) {
  if (const auto* raw = std::get_if<RawPixels>(&job.image)) {
    if (absl::Status status = CheckRaw(*raw, limits); !status.ok()) return status;
    return Source{raw->width, raw->height, StoredBytes(job)};
  }
  const absl::StatusOr<ImageHeader> header =
      ReadHeader(std::get<EncodedFile>(job.image).file.bytes, limits);
  if (!header.ok()) return header.status();
  return Source{header->width, header->height,
                StoredBytes(job) + static_cast<int64_t>(DecodeBytes(*header))};
}

}  // namespace

absl::StatusOr<ImageCost> CostOf(const EncodeJob& job, const DecodeOptions& limits) {
  const absl::StatusOr<Source> source = SourceOf(job, limits);
  if (!source.ok()) return source.status();
  const auto [width, height, bytes] = *source;
  ImageCost cost;
  int64_t after_decoding = 0;
  // The file may be stored on its side, which can change the number of tiles.
  for (const auto& [w, h] : {std::pair(width, height), std::pair(height, width)}) {
    const absl::StatusOr<ViewPlan> plan = PlanViews(w, h, job.mode, job.max_tiles);
    if (!plan.ok()) return plan.status();
    int64_t view_bytes = 0;
    for (const ResizeJob& resize : plan->jobs) {
      view_bytes += int64_t{3} * resize.views() * resize.side * resize.side;
    }
    const int rows = LayoutOf(job.mode, plan->tiles).rows;
    after_decoding =
        std::max(after_decoding, view_bytes + static_cast<int64_t>(ReplyBytes(rows, job.dtype)));
    if (plan->views() <= cost.charge.views) continue;
    cost.charge.views = plan->views();
    cost.views.clear();
    for (const ResizeJob& resize : plan->jobs) cost.views[resize.side] += resize.views();
  }
  cost.charge.bytes = bytes + after_decoding;
  return cost;
}

}  // namespace deepencoder
