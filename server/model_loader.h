// Options -> checkpoint, backends, engine: everything that takes seconds at the start and at a reload.
#pragma once

#include <atomic>
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
#include "server/engine/serving_engine.h"
#include "server/log.h"
#include "server/options.h"
#include "server/rpc/translate.h"

namespace deepencoder {

// What encodes. Chosen once: a reload uses the same devices.
struct DevicePlan {
  bool cuda = false;
  std::vector<int> devices;  // ordinals
  DType compute = DType::kBf16;
};

// One device of a model. The backend is the engine's, once it has taken the model.
struct ModelDevice {
  std::weak_ptr<const Backend> backend;
  int slots = 0;
};

// What is known of a model after the engine has taken its devices.
struct ModelFacts {
  std::string folder;
  v1::ModelInfo info;
  std::vector<ModelDevice> devices;

  std::vector<std::weak_ptr<const Backend>> Backends() const;
};

// Weights on every device of the plan, with slots: ready for an engine.
struct Model {
  ModelFacts facts;
  std::vector<DeviceSlots> devices;
  SpecialRows special;
};

RequestRules RulesOf(const ServerOptions& options);

// Errors: INVALID_ARGUMENT, UNAVAILABLE naming the option that cannot be followed.
absl::StatusOr<DevicePlan> ChooseDevices(const ServerOptions& options, const Logger& logger);

// The checkpoint of `folder`. Where memory is short, smaller batches or fewer slots.
// Errors: those of the checkpoint and the backends.
absl::StatusOr<Model> LoadModel(const ServerOptions& options, const DevicePlan& plan,
                                const std::string& folder, const Logger& logger);

// As LoadModel, while `current` serves on the same devices: with as many slots and the same batch sizes as
// it has, or not at all. One image went through every slot and view side.
// Errors: also RESOURCE_EXHAUSTED, if the devices have no room for both models beside what images under
// way take; CANCELLED, once `stop` is true.
absl::StatusOr<Model> LoadModelBeside(const ServerOptions& options, const DevicePlan& plan,
                                      const std::string& folder, const ModelFacts& current,
                                      const std::atomic<bool>& stop, const Logger& logger);

// Takes the model's devices. `decoder` turns files into pixels. `observer`, `clock` and `logger` must outlive the engine.
absl::StatusOr<std::unique_ptr<ServingEngine>> MakeEngine(const ServerOptions& options,
                                                          Model& model,
                                                          std::shared_ptr<ImageDecoder> decoder,
                                                          EngineObserver* observer,
                                                          const Clock* clock, const Logger* logger);

}  // namespace deepencoder
