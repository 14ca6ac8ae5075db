// JSON, and config.json of a checkpoint.
#include "encoder/weights/json.h"
#include "encoder/weights/model_config.h"
#include "tests/fuzz/fuzz_target.h"

namespace deepencoder::fuzz {

void TryInput(const uint8_t* data, size_t size) {
  constexpr size_t kMaxBytes = size_t{64} << 10;
  const absl::StatusOr<JsonObject> json = ParseJson(AsText(data, size), kMaxBytes);
  if (!json.ok()) return RequireRefusal(json.status());
  const absl::StatusOr<ModelConfig> config = ParseModelConfig(*json);
  if (!config.ok()) return RequireRefusal(config.status());
  Require(config->sam_depth >= 1 && config->sam_depth <= kMaxDepth, "sam_depth is in range");
  Require(config->clip_layers >= 1 && config->clip_layers <= kMaxDepth, "clip_layers is in range");
  for (const int block : config->global_blocks) {
    Require(block >= 0 && block < config->sam_depth, "global blocks are blocks of the model");
  }
}

}  // namespace deepencoder::fuzz
