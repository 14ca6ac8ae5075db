#include "encoder/weights/model_config.h"

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace deepencoder {
namespace {

using Path = std::initializer_list<std::string_view>;

constexpr size_t kMaxConfigBytes = size_t{1} << 20;
// Of CLIP-L as it was trained; the encoder feeds it SAM's features in place of patches.
constexpr int64_t kClipImageSide = 224, kClipPatchSide = 14;
constexpr int64_t kImageSide = 1024;  // the one the stored position tables belong to
constexpr std::string_view kSam = "sam_vit_b", kClip = "clip-l-14-224";

absl::Status At(Path path, std::string_view message) {
  std::string field;
  for (const std::string_view part : path)
    absl::StrAppend(&field, field.empty() ? "" : ".", std::string(part));
  return absl::InvalidArgumentError(absl::StrCat(field, ": ", std::string(message)));
}

std::string_view Message(const absl::Status& status) {
  return {status.message().data(), status.message().size()};
}

absl::StatusOr<int64_t> Integer(const JsonObject& json, Path path, int64_t min, int64_t max) {
  const absl::StatusOr<const JsonValue*> value = FindJson(json, path);
  if (!value.ok()) return value.status();
  absl::StatusOr<int64_t> number = JsonInteger(**value, min, max);
  if (!number.ok()) return At(path, Message(number.status()));
  return number;
}

absl::StatusOr<std::vector<int64_t>> Integers(const JsonObject& json, Path path) {
  const absl::StatusOr<const JsonValue*> value = FindJson(json, path);
  if (!value.ok()) return value.status();
  absl::StatusOr<std::vector<int64_t>> numbers =
      JsonIntegers(**value, 0, std::numeric_limits<int>::max(), kMaxDepth);
  if (!numbers.ok()) return At(path, Message(numbers.status()));
  return numbers;
}

absl::Status ExpectInteger(const JsonObject& json, Path path, int64_t expected) {
  const absl::StatusOr<int64_t> found = Integer(json, path, 0, std::numeric_limits<int>::max());
  if (!found.ok()) return found.status();
  if (*found == expected) return absl::OkStatus();
  return At(path, absl::StrCat("expected ", expected,
                               ", the width this encoder is built for, found ", *found));
}

absl::Status ExpectString(const JsonObject& json, Path path, std::string_view expected) {
  const absl::StatusOr<const JsonValue*> value = FindJson(json, path);
  if (!value.ok()) return value.status();
  const absl::StatusOr<std::string_view> found = JsonString(**value);
  if (!found.ok()) return At(path, Message(found.status()));
  if (*found == expected) return absl::OkStatus();
  return At(path, absl::StrCat("expected \"", std::string(expected), "\", found \"",
                               std::string(*found), "\""));
}

// Everything the file states and the encoder fixes.
absl::Status CheckFixedFields(const JsonObject& json) {
  const struct {
    Path path;
    int64_t expected;
  } integers[] = {
      {{"vision_config", "image_size"}, kImageSide},
      {{"vision_config", "width", kSam, "width"}, kSamWidth},
      {{"vision_config", "width", kSam, "heads"}, kSamHeads},
      {{"vision_config", "width", kClip, "width"}, kClipWidth},
      {{"vision_config", "width", kClip, "heads"}, kClipHeads},
      {{"vision_config", "width", kClip, "image_size"}, kClipImageSide},
      {{"vision_config", "width", kClip, "patch_size"}, kClipPatchSide},
      {{"projector_config", "input_dim"}, kClipWidth + kNet3Width},
      {{"projector_config", "n_embed"}, kEmbeddingWidth},
  };
  for (const auto& field : integers) {
    if (absl::Status status = ExpectInteger(json, field.path, field.expected); !status.ok()) {
      return status;
    }
  }
  return ExpectString(json, {"projector_config", "projector_type"}, "linear");
}

absl::Status CheckDownsampling(const JsonObject& json) {
  const Path path = {"vision_config", "width", kSam, "downsample_channels"};
  const absl::StatusOr<std::vector<int64_t>> channels = Integers(json, path);
  if (!channels.ok()) return channels.status();
  if (*channels == std::vector<int64_t>{kNet2Width, kNet3Width}) return absl::OkStatus();
  return At(path, absl::StrCat("expected [", kNet2Width, ", ", kNet3Width, "]"));
}

}  // namespace

absl::StatusOr<ModelConfig> ParseModelConfig(const JsonObject& json) {
  if (absl::Status status = CheckFixedFields(json); !status.ok()) return status;
  if (absl::Status status = CheckDownsampling(json); !status.ok()) return status;

  const absl::StatusOr<int64_t> sam_depth =
      Integer(json, {"vision_config", "width", kSam, "layers"}, 1, kMaxDepth);
  if (!sam_depth.ok()) return sam_depth.status();
  const absl::StatusOr<int64_t> clip_layers =
      Integer(json, {"vision_config", "width", kClip, "layers"}, 1, kMaxDepth);
  if (!clip_layers.ok()) return clip_layers.status();
  const absl::StatusOr<std::vector<int64_t>> global_blocks =
      Integers(json, {"vision_config", "width", kSam, "global_attn_indexes"});
  if (!global_blocks.ok()) return global_blocks.status();

  ModelConfig config;
  config.sam_depth = static_cast<int>(*sam_depth);
  config.clip_layers = static_cast<int>(*clip_layers);
  config.global_blocks.clear();
  for (const int64_t block : *global_blocks) {
    // Shallower models keep the full model's list; blocks past their depth do not exist.
    if (block < *sam_depth) config.global_blocks.push_back(static_cast<int>(block));
  }
  std::sort(config.global_blocks.begin(), config.global_blocks.end());
  config.global_blocks.erase(std::unique(config.global_blocks.begin(), config.global_blocks.end()),
                             config.global_blocks.end());
  return config;
}

absl::StatusOr<ModelConfig> ReadModelConfig(const std::string& path) {
  const absl::StatusOr<JsonObject> json = ReadJsonFile(path, kMaxConfigBytes);
  if (!json.ok()) return json.status();
  absl::StatusOr<ModelConfig> config = ParseModelConfig(*json);
  if (!config.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": ", config.status().message()));
  }
  return config;
}

}  // namespace deepencoder
