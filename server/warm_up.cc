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

bool AllFinite(const EncodeResult& result) {
  for (size_t at = 0; at + sizeof(float) <= result.bytes; at += sizeof(float)) {
    float value;
    std::memcpy(&value, result.data.get() + at, sizeof(value));
    if (!std::isfinite(value)) return false;
  }
  return true;
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
    if (!AllFinite(*result)) {
      return absl::InternalError(absl::StrCat("warm-up in mode ", name,
                                              ": the embeddings have values that are not finite; "
                                              "the weights or the device are broken"));
    }
  }
  return absl::OkStatus();
}

}  // namespace deepencoder
