// config.json of a DeepSeek-OCR checkpoint -> ModelConfig.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "encoder/model/config.h"
#include "encoder/weights/json.h"

namespace deepencoder {

inline constexpr int kMaxDepth = 256;  // of either tower

// Takes depths and global blocks, and checks every width that the file states against what this
// encoder computes with. Errors: INVALID_ARGUMENT naming the field, what was expected and what was
// found.
absl::StatusOr<ModelConfig> ParseModelConfig(const JsonObject& json);

// As ParseModelConfig, from a file; errors start with the path.
absl::StatusOr<ModelConfig> ReadModelConfig(const std::string& path);

}  // namespace deepencoder
