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
#include "server/engine/pool_builder.h"
#include "server/engine/serving_engine.h"

namespace deepencoder {
namespace {

constexpr int kDefaultCudaSlots = 2, kDefaultCpuSlots = 1;

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

 private:
  const std::shared_ptr<Backend> backend_;
};

// Which devices, and how one becomes a backend.
struct DevicePlan {
  bool cuda = false;
  std::vector<int> devices;
};

absl::Status Prefixed(const std::string& prefix, const absl::Status& status) {
  return {status.code(), absl::StrCat(prefix, ": ", std::string(status.message()))};
}

absl::StatusOr<DevicePlan> ChooseDevices(const ServerOptions& options, const Logger& logger) {
  const DevicePlan cpu = {.cuda = false, .devices = {0}};
  if (options.device == DeviceChoice::kCpu) return cpu;
  const absl::StatusOr<int> count = CudaDeviceCount();
  if (!count.ok()) {
    if (options.device == DeviceChoice::kCuda) return Prefixed("--device=cuda", count.status());
    logger.Info("no CUDA device, encoding on the CPU",
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

PoolOptions PoolOptionsOf(const ServerOptions& options, const DevicePlan& plan, DType compute) {
  PoolOptions pool;
  pool.backend.compute = compute;
  pool.backend.sides = SidesOf(options.modes);
  pool.backend.batch_buckets = options.batch_buckets;
  pool.backend.graphs = options.graphs;
  pool.backend.threads = static_cast<int>(options.threads);
  pool.slots = static_cast<int>(options.slots);
  if (pool.slots == 0) pool.slots = plan.cuda ? kDefaultCudaSlots : kDefaultCpuSlots;
  return pool;
}

absl::StatusOr<std::vector<DeviceSlots>> BuildDevices(
    const ServerOptions& options, const DevicePlan& plan, const Checkpoint& checkpoint,
    const std::function<void(const std::string&)>& log,
    std::vector<std::weak_ptr<const Backend>>& backends) {
  const absl::StatusOr<DType> compute = ChooseComputeType(options, plan.cuda);
  if (!compute.ok()) return compute.status();
  std::vector<DeviceSlots> devices;
  for (const int device : plan.devices) {
    std::shared_ptr<Backend> made;
    const CreateBackend create =
        [&](const BackendOptions& wanted) -> absl::StatusOr<std::unique_ptr<Backend>> {
      made = nullptr;  // a first one that did not fit must be gone before the next is made
      auto backend =
          plan.cuda ? CreateCudaBackend(checkpoint, wanted) : CreateCpuBackend(checkpoint, wanted);
      if (!backend.ok()) return backend.status();
      made = *std::move(backend);
      return std::make_unique<SharedBackend>(made);
    };
    PoolOptions pool = PoolOptionsOf(options, plan, *compute);
    pool.backend.device = device;
    absl::StatusOr<DeviceSlots> slots = BuildPool(create, pool, log);
    if (!slots.ok()) {
      return Prefixed(absl::StrCat(plan.cuda ? "GPU " : "CPU ", device), slots.status());
    }
    devices.push_back(*std::move(slots));
    backends.emplace_back(made);
  }
  return devices;
}

EngineOptions EngineOptionsOf(const ServerOptions& options,
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
  engine.log = std::move(log);
  return engine;
}

v1::ModelInfo DescribeModel(const ServerOptions& options, const Checkpoint& checkpoint,
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

}  // namespace

RequestRules RulesOf(const ServerOptions& options) {
  return {.modes = options.modes,
          .max_tiles = static_cast<int>(options.max_tiles),
          .alpha = options.alpha,
          .gray16 = options.gray16,
          .max_image_bytes = options.max_image_bytes};
}

absl::StatusOr<LoadedModel> LoadModel(const ServerOptions& options,
                                      std::shared_ptr<ImageDecoder> decoder,
                                      EngineObserver* observer, const Clock* clock,
                                      const Logger* logger) {
  const absl::StatusOr<DevicePlan> plan = ChooseDevices(options, *logger);
  if (!plan.ok()) return plan.status();
  const auto checkpoint = Checkpoint::Open(options.model);
  if (!checkpoint.ok()) return Prefixed("--model", checkpoint.status());
  logger->Info("checkpoint opened", {{"folder", options.model},
                                     {"fingerprint", (*checkpoint)->fingerprint()},
                                     {"sam_depth", (*checkpoint)->config().sam_depth},
                                     {"clip_layers", (*checkpoint)->config().clip_layers}});

  const auto log = [logger](const std::string& line) { logger->Info(line); };
  LoadedModel model;
  absl::StatusOr<std::vector<DeviceSlots>> devices =
      BuildDevices(options, *plan, **checkpoint, log, model.backends);
  if (!devices.ok()) return devices.status();
  model.info = DescribeModel(options, **checkpoint, *devices);
  model.compute = devices->front().backend->info().compute;
  SpecialRows special = {.image_newline = (*checkpoint)->GetFloats("model.image_newline"),
                         .view_separator = (*checkpoint)->GetFloats("model.view_seperator")};
  EngineOptions engine_options = EngineOptionsOf(options, log);
  engine_options.decoder = std::move(decoder);
  auto engine = ServingEngine::Create(std::move(engine_options), *std::move(devices),
                                      std::move(special), observer, clock);
  if (!engine.ok()) return engine.status();
  model.engine = *std::move(engine);
  return model;
}

}  // namespace deepencoder
