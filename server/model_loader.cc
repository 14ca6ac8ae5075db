#include "server/model_loader.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "encoder/version/version.h"
#include "encoder/weights/checkpoint.h"
#include "server/backend_factory.h"
#include "server/engine/pool_builder.h"
#include "server/warm_up.h"

namespace deepencoder {
namespace {

constexpr int kDefaultCudaSlots = 2, kDefaultCpuSlots = 1;
// Longer than any batch or capture of graphs takes, many times over. A CPU has no kernels to get stuck.
constexpr absl::Duration kDefaultCudaTimeout = absl::Minutes(1);

// The engine owns its backends; this shares one, so that metrics may ask it for its memory for as long
// as it lives.
class SharedBackend final : public Backend {
 public:
  explicit SharedBackend(std::shared_ptr<Backend> backend) : backend_(std::move(backend)) {}
  const BackendInfo& info() const override { return backend_->info(); }
  absl::StatusOr<std::shared_ptr<const ViewSet>> MakeViews(const RgbImage& image,
                                                           const ViewPlan& plan) override {
    return backend_->MakeViews(image, plan);
  }
  absl::StatusOr<std::unique_ptr<EncoderSlot>> CreateSlot() override {
    return backend_->CreateSlot();
  }
  std::vector<MemoryUse> Memory() const override { return backend_->Memory(); }
  size_t FreeMemory() const override { return backend_->FreeMemory(); }

 private:
  const std::shared_ptr<Backend> backend_;
};

absl::Status Prefixed(const std::string& prefix, const absl::Status& status) {
  return {status.code(), absl::StrCat(prefix, ": ", std::string(status.message()))};
}

absl::StatusOr<DevicePlan> FindDevices(const ServerOptions& options, const Logger& logger) {
  const DevicePlan cpu = {.cuda = false, .devices = {0}};
  if (options.device == DeviceChoice::kCpu) return cpu;
  const absl::StatusOr<int> count = CudaDeviceCount();
  if (!count.ok()) {
    if (options.device == DeviceChoice::kCuda) return Prefixed("--device=cuda", count.status());
    logger.Warning("no CUDA device, encoding on the CPU",
                   {{"reason", std::string(count.status().message())}});
    return cpu;
  }
  DevicePlan plan = {.cuda = true, .devices = options.devices};
  for (const int device : plan.devices) {
    if (device >= *count) {
      return absl::InvalidArgumentError(
          absl::StrCat("--devices: there is no GPU ", device, "; this machine has ", *count));
    }
  }
  for (int device = 0; options.devices.empty() && device < *count; ++device) {
    plan.devices.push_back(device);
  }
  return plan;
}

absl::StatusOr<DType> ChooseComputeType(const ServerOptions& options, bool cuda) {
  const DType chosen = options.compute_dtype.value_or(cuda ? DType::kBf16 : BestCpuType());
  if (chosen == (cuda ? DType::kFp32 : DType::kFp16)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--compute-dtype: ",
                     cuda ? "CUDA computes in bf16 or fp16" : "the CPU computes in bf16 or fp32",
                     ", not in ", std::string(Name(chosen))));
  }
  return chosen;
}

PoolOptions PoolOptionsOf(const ServerOptions& options, const DevicePlan& plan) {
  PoolOptions pool;
  pool.backend.compute = plan.compute;
  pool.backend.sides = SidesOf(options.modes);
  pool.backend.batch_buckets = options.batch_buckets;
  pool.backend.graphs = options.graphs;
  pool.backend.threads = static_cast<int>(options.threads);
  pool.slots = static_cast<int>(options.slots);
  if (pool.slots == 0) pool.slots = plan.cuda ? kDefaultCudaSlots : kDefaultCpuSlots;
  return pool;
}

// Of one device, into `model`.
absl::Status LoadDevice(const DevicePlan& plan, const PoolOptions& pool,
                        const Checkpoint& checkpoint, const Logger& logger, Model& model) {
  std::shared_ptr<Backend> made;
  const CreateBackend create =
      [&](const BackendOptions& wanted) -> absl::StatusOr<std::unique_ptr<Backend>> {
    made = nullptr;  // a first one that did not fit must be gone before the next is made
    auto backend = MakeBackend(plan.cuda, checkpoint, wanted);
    if (!backend.ok()) return backend.status();
    made = *std::move(backend);
    return std::make_unique<SharedBackend>(made);
  };
  absl::StatusOr<DeviceSlots> slots =
      BuildPool(create, pool, [&logger](const std::string& line) { logger.Info(line); });
  if (!slots.ok()) {
    return Prefixed(absl::StrCat(plan.cuda ? "GPU " : "CPU ", pool.backend.device), slots.status());
  }
  const BackendInfo& info = made->info();
  logger.Info("device ready", {{"kind", info.kind},
                               {"device", info.device},
                               {"name", info.device_name},
                               {"library", info.library}});
  model.facts.devices.push_back({.backend = made, .slots = static_cast<int>(slots->slots.size())});
  model.devices.push_back(*std::move(slots));
  return absl::OkStatus();
}

EngineOptions EngineOptionsOf(const ServerOptions& options, bool cuda,
                              std::function<void(const std::string&)> log) {
  EngineOptions engine;
  engine.decode_threads = static_cast<int>(options.decode_threads);
  engine.decode.max_bytes = static_cast<size_t>(options.max_image_bytes);
  engine.decode.max_pixels = options.max_image_pixels;
  engine.limits.images = options.max_images_in_flight;
  engine.limits.views = options.max_views_in_flight;
  engine.limits.bytes = options.max_bytes_in_flight;
  engine.batch.max_delay = options.max_batch_delay;
  engine.cache_bytes = static_cast<size_t>(options.cache_bytes);
  if (options.device_timeout > absl::ZeroDuration()) {
    engine.device_timeout = options.device_timeout;
  } else if (cuda) {
    engine.device_timeout = kDefaultCudaTimeout;
  }
  engine.log = std::move(log);
  return engine;
}

v1::ModelInfo Describe(const ServerOptions& options, const Checkpoint& checkpoint,
                       const std::vector<DeviceSlots>& devices) {
  v1::ModelInfo info = DescribeModes(RulesOf(options), options.max_image_pixels);
  const BackendInfo& device = devices.front().backend->info();
  info.set_model("deepseek-ocr");
  info.set_weights_fingerprint(checkpoint.fingerprint());
  info.set_compute_dtype(ToProto(device.compute));
  info.set_device(absl::StrCat(device.kind, ": ",
                               devices.size() > 1 ? absl::StrCat(devices.size(), " x ") : "",
                               device.device_name));
  info.set_version(kBuildVersion);
  info.set_commit(kBuildCommit);
  info.set_synthetic(checkpoint.synthetic());
  return info;
}

absl::StatusOr<std::unique_ptr<Checkpoint>> OpenCheckpoint(const std::string& folder,
                                                           const Logger& logger) {
  auto checkpoint = Checkpoint::Open(folder);
  if (!checkpoint.ok()) return checkpoint;
  logger.Info("checkpoint opened", {{"folder", folder},
                                    {"fingerprint", (*checkpoint)->fingerprint()},
                                    {"sam_depth", (*checkpoint)->config().sam_depth},
                                    {"clip_layers", (*checkpoint)->config().clip_layers}});
  return checkpoint;
}

// What is left to do once the devices are there.
absl::Status Finish(const ServerOptions& options, const std::string& folder,
                    const Checkpoint& checkpoint, Model& model) {
  model.facts.folder = folder;
  model.facts.info = Describe(options, checkpoint, model.devices);
  model.special = {.image_newline = checkpoint.GetFloats("model.image_newline"),
                   .view_separator = checkpoint.GetFloats("model.view_seperator")};
  return checkpoint.CheckUnchanged();
}

// Bytes that the tensors take in `compute`.
size_t WeightBytes(const Checkpoint& checkpoint, DType compute) {
  size_t bytes = 0;
  for (const auto& [name, tensor] : checkpoint.tensors()) {
    bytes += static_cast<size_t>(tensor.Count()) * SizeOf(compute);
  }
  return bytes;
}

// Whether a device has room for a second model. The images under way are given what they ever took: they
// must not be refused because the reload took the rest.
absl::Status CheckRoom(const Backend& current, size_t new_weights) {
  size_t need = 0, views = 0;
  for (const MemoryUse& use : current.Memory()) {
    if (use.kind == "views") {
      views += use.peak;
    } else if (use.kind != "code") {  // is loaded once for both
      need += use.kind == "weights" ? std::max(use.current, new_weights) : use.current;
    }
  }
  const size_t free = current.FreeMemory();
  if (need + views <= free) return absl::OkStatus();
  const auto mib = [](size_t bytes) { return absl::StrCat(bytes >> 20, " MiB"); };
  return absl::ResourceExhaustedError(
      absl::StrCat(current.info().kind, " device ", current.info().device,
                   ": no room for a second model: it needs ", mib(need), ", and ", mib(views),
                   " are kept for images; ", mib(free), " are free"));
}

}  // namespace

std::vector<std::weak_ptr<const Backend>> ModelFacts::Backends() const {
  std::vector<std::weak_ptr<const Backend>> backends;
  for (const ModelDevice& device : devices) backends.push_back(device.backend);
  return backends;
}

RequestRules RulesOf(const ServerOptions& options) {
  return {.modes = options.modes,
          .max_tiles = static_cast<int>(options.max_tiles),
          .alpha = options.alpha,
          .gray16 = options.gray16,
          .max_image_bytes = options.max_image_bytes,
          .shared_memory_bytes = options.shared_memory ? options.shared_memory_bytes : 0};
}

absl::StatusOr<DevicePlan> ChooseDevices(const ServerOptions& options, const Logger& logger) {
  absl::StatusOr<DevicePlan> plan = FindDevices(options, logger);
  if (!plan.ok()) return plan;
  const absl::StatusOr<DType> compute = ChooseComputeType(options, plan->cuda);
  if (!compute.ok()) return compute.status();
  plan->compute = *compute;
  return plan;
}

absl::StatusOr<Model> LoadModel(const ServerOptions& options, const DevicePlan& plan,
                                const std::string& folder, const Logger& logger) {
  const auto checkpoint = OpenCheckpoint(folder, logger);
  if (!checkpoint.ok()) return Prefixed("--model", checkpoint.status());
  Model model;
  PoolOptions pool = PoolOptionsOf(options, plan);
  for (const int device : plan.devices) {
    pool.backend.device = device;
    absl::Status status = LoadDevice(plan, pool, **checkpoint, logger, model);
    if (!status.ok()) return status;
  }
  absl::Status status = Finish(options, folder, **checkpoint, model);
  if (!status.ok()) return status;
  return model;
}

absl::StatusOr<Model> LoadModelBeside(const ServerOptions& options, const DevicePlan& plan,
                                      const std::string& folder, const ModelFacts& current,
                                      const std::atomic<bool>& stop, const Logger& logger) {
  const auto checkpoint = OpenCheckpoint(folder, logger);
  if (!checkpoint.ok()) return checkpoint.status();
  const size_t new_weights = WeightBytes(**checkpoint, plan.compute);
  Model model;
  PoolOptions pool = PoolOptionsOf(options, plan);
  pool.may_shrink = false;
  for (size_t i = 0; i < plan.devices.size(); ++i) {
    if (stop) return absl::CancelledError("the server is stopping");
    pool.backend.device = plan.devices[i];
    // Null only after the last of its users has gone, which is after a switch.
    if (const auto old = current.devices[i].backend.lock()) {
      if (absl::Status status = CheckRoom(*old, new_weights); !status.ok()) return status;
      pool.backend.batch_buckets = old->info().batch_buckets;
    }
    pool.slots = current.devices[i].slots;
    absl::Status status = LoadDevice(plan, pool, **checkpoint, logger, model);
    if (status.ok()) status = Probe(model.devices.back(), options.modes);
    if (!status.ok()) return status;
  }
  absl::Status status = Finish(options, folder, **checkpoint, model);
  if (!status.ok()) return status;
  return model;
}

absl::StatusOr<std::unique_ptr<ServingEngine>> MakeEngine(
    const ServerOptions& options, Model& model, std::shared_ptr<ImageDecoder> decoder,
    EngineObserver* observer, const Clock* clock, const Logger* logger) {
  EngineOptions engine =
      EngineOptionsOf(options, model.devices.front().backend->info().kind == "cuda",
                      [logger](const std::string& line) { logger->Info(line); });
  engine.decoder = std::move(decoder);
  return ServingEngine::Create(std::move(engine), std::move(model.devices),
                               std::move(model.special), observer, clock);
}

}  // namespace deepencoder
