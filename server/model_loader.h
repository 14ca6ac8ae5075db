// Options -> checkpoint, backends, engine: everything that takes seconds at the start.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "deepencoder/v1/vision_encoder.pb.h"
#include "encoder/backend/backend.h"
#include "encoder/base/dtype.h"
#include "server/engine/clock.h"
#include "server/engine/engine.h"
#include "server/engine/image_decoder.h"
#include "server/log.h"
#include "server/options.h"
#include "server/rpc/translate.h"

namespace deepencoder {

struct LoadedModel {
  std::shared_ptr<Engine> engine;
  v1::ModelInfo info;
  DType compute = DType::kBf16;
  std::vector<std::weak_ptr<const Backend>> backends;  // the engine's; for Memory()
};

RequestRules RulesOf(const ServerOptions& options);

// `observer`, `clock` and `logger` must outlive the engine.
// Errors: those of the checkpoint and the backends, with the option that led to them.
absl::StatusOr<LoadedModel> LoadModel(const ServerOptions& options,
                                      std::shared_ptr<ImageDecoder> decoder,
                                      EngineObserver* observer, const Clock* clock,
                                      const Logger* logger);

}  // namespace deepencoder
