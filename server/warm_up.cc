#include "server/warm_up.h"

#include <cmath>
#include <cstring>
#include <future>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "encoder/image/view_plan.h"
#include "encoder/model/config.h"

namespace deepencoder {
namespace {

// Wider than a tile, so that gundam cuts tiles from it.
constexpr int kWidth = 1300, kHeight = 700;

std::shared_ptr<const std::vector<std::byte>> Gradient() {
  auto rgb = std::make_shared<std::vector<std::byte>>(size_t{kWidth} * kHeight * 3);
  for (int y = 0; y < kHeight; ++y) {
    for (int x = 0; x < kWidth; ++x) {
      std::byte* pixel = rgb->data() + (size_t{3} * (y * kWidth + x));
      pixel[0] = static_cast<std::byte>(x * 255 / kWidth);
      pixel[1] = static_cast<std::byte>(y * 255 / kHeight);
      pixel[2] = static_cast<std::byte>((x ^ y) & 255);
    }
  }
  return rgb;
}

absl::StatusOr<EncodeResult> Encode(Engine& engine, EncodeJob job) {
  std::promise<absl::StatusOr<EncodeResult>> promise;
  engine.Encode(std::move(job), [&promise](absl::StatusOr<EncodeResult> result) {
    promise.set_value(std::move(result));
  });
  return promise.get_future().get();
}

bool AllFinite(std::span<const std::byte> floats) {
  for (size_t at = 0; at + sizeof(float) <= floats.size(); at += sizeof(float)) {
    float value;
    std::memcpy(&value, floats.data() + at, sizeof(value));
    if (!std::isfinite(value)) return false;
  }
  return true;
}

absl::Status NotFinite(std::string_view mode) {
  return absl::InternalError(absl::StrCat("warm-up in mode ", std::string(mode),
                                          ": the embeddings have values that are not finite; "
                                          "the weights or the device are broken"));
}

// Few of `modes` that use every view side which all of them use.
std::vector<Mode> Covering(std::span<const Mode> modes) {
  std::vector<Mode> chosen;
  std::set<int> covered;
  const auto cover = [&](Mode mode) {
    const ModeSpec& spec = SpecOf(mode);
    bool is_new = covered.insert(spec.base_side).second;
    if (spec.tile_side != 0) is_new |= covered.insert(spec.tile_side).second;
    if (is_new) chosen.push_back(mode);
  };
  for (const Mode mode : modes) {
    if (SpecOf(mode).tile_side != 0) cover(mode);  // the ones with two sides first
  }
  for (const Mode mode : modes) cover(mode);
  return chosen;
}

}  // namespace

absl::Status WarmUp(Engine& engine, std::span<const Mode> modes) {
  const auto rgb = Gradient();
  for (const Mode mode : Covering(modes)) {
    EncodeJob job;
    job.request_id = "warm-up";
    job.image = RawPixels{kWidth, kHeight, SharedBytes{rgb, *rgb}};
    job.mode = mode;
    job.dtype = DType::kFp32;
    const absl::StatusOr<EncodeResult> result = Encode(engine, std::move(job));
    const std::string name(SpecOf(mode).name);
    if (!result.ok()) {
      return {result.status().code(),
              absl::StrCat("warm-up in mode ", name, ": ", std::string(result.status().message()))};
    }
    if (!AllFinite({result->data.get(), result->bytes})) return NotFinite(name);
  }
  return absl::OkStatus();
}

absl::Status Probe(const DeviceSlots& device, std::span<const Mode> modes) {
  const auto rgb = Gradient();
  // Looked at, not written: OpenCV has no matrix of constant data.
  auto* pixels = const_cast<std::byte*>(rgb->data());
  const RgbImage image(cv::Mat(kHeight, kWidth, CV_8UC3, pixels));
  for (const Mode mode : Covering(modes)) {
    const absl::StatusOr<ViewPlan> plan = PlanViews(kWidth, kHeight, mode, kDefaultMaxTiles);
    if (!plan.ok()) return plan.status();
    const auto views = device.backend->MakeViews(image, *plan);
    if (!views.ok()) return views.status();
    for (const auto& slot : device.slots) {
      std::set<int> sides;
      for (int view = 0; view < (*views)->size(); ++view) {
        const int side = (*views)->side(view), lines = OutputGridOf(side);
        if (!sides.insert(side).second) continue;
        const size_t line_bytes = size_t{kEmbeddingWidth} * lines * sizeof(float);
        std::vector<std::byte> rows(line_bytes * lines);
        const EncodeItem item = {.views = views->get(),
                                 .view = view,
                                 .dtype = DType::kFp32,
                                 .rows = rows.data(),
                                 .line_stride = line_bytes};
        EncodeStats stats;
        absl::Status status = slot->Encode(side, {&item, 1}, &stats);
        if (!status.ok()) return status;
        if (!AllFinite(rows)) return NotFinite(SpecOf(mode).name);
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace deepencoder
