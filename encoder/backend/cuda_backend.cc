// The Backend interface over the CUDA library's table of functions.
#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "encoder/backend/backend.h"
#include "encoder/backend/cuda_library.h"
#include "encoder/model/checkpoint_layout.h"

namespace deepencoder {
namespace {

static_assert(static_cast<int>(DType::kBf16) == DE_BF16 &&
              static_cast<int>(DType::kFp16) == DE_FP16 &&
              static_cast<int>(DType::kFp32) == DE_FP32);

class CudaViewSet : public ViewSet {
 public:
  CudaViewSet(const DeCudaApi* api, DeViews* views) : api_(api), views_(views) {}
  ~CudaViewSet() override { api_->destroy_views(views_); }
  CudaViewSet(const CudaViewSet&) = delete;
  CudaViewSet& operator=(const CudaViewSet&) = delete;

  int size() const override { return api_->view_count(views_); }
  int side(int view) const override { return api_->view_side(views_, view); }
  size_t bytes() const override { return api_->view_bytes(views_); }
  const DeViews* handle() const { return views_; }

 private:
  const DeCudaApi* api_;
  DeViews* views_;
};

class CudaSlot : public EncoderSlot {
 public:
  CudaSlot(const DeCudaApi* api, DeSlot* slot) : api_(api), slot_(slot) {}
  ~CudaSlot() override { api_->destroy_slot(slot_); }
  CudaSlot(const CudaSlot&) = delete;
  CudaSlot& operator=(const CudaSlot&) = delete;

  absl::Status Encode(int side, std::span<const EncodeItem> items, EncodeStats* stats) override {
    return Call(items, stats,
                [&](const DeEncodeItem* list, int32_t count, DeEncodeStats* out, DeError* error) {
                  return api_->encode(slot_, side, list, count, out, error);
                });
  }

  bool Overlaps() const override { return CudaEncodeAhead() != nullptr; }

  absl::Status EncodeAhead(int side, std::span<const EncodeItem> items, EncodeStats* stats,
                           const std::function<void()>& computed) override {
    if (!Overlaps()) return EncoderSlot::EncodeAhead(side, items, stats, computed);
    const auto call = [](void* context) {
      (*static_cast<const std::function<void()>*>(context))();
    };
    return Call(items, stats,
                [&](const DeEncodeItem* list, int32_t count, DeEncodeStats* out, DeError* error) {
                  return CudaEncodeAhead()(slot_, side, list, count, out, call,
                                           const_cast<std::function<void()>*>(&computed), error);
                });
  }

 private:
  // `encode(list, count, stats, error)` with the items as the library takes them.
  template <typename Encoding>
  static absl::Status Call(std::span<const EncodeItem> items, EncodeStats* stats,
                           const Encoding& encode) {
    std::vector<DeEncodeItem> list;
    list.reserve(items.size());
    for (const EncodeItem& item : items) {
      const auto* views = dynamic_cast<const CudaViewSet*>(item.views);
      if (views == nullptr)
        return absl::InvalidArgumentError("a view that was not made by the CUDA backend");
      list.push_back({views->handle(), item.view, static_cast<int32_t>(item.dtype), item.rows,
                      item.line_stride});
    }
    DeEncodeStats out = {};
    DeError error = {};
    const DeCode code = encode(list.data(), static_cast<int32_t>(list.size()), &out, &error);
    if (code != DE_OK) return ToStatus(code, error);
    *stats = {out.bucket, out.graph != 0 ? GraphUse::kHit : GraphUse::kMiss, out.compute_seconds};
    return absl::OkStatus();
  }

  const DeCudaApi* api_;
  DeSlot* slot_;
};

class CudaBackend : public Backend {
 public:
  CudaBackend(const DeCudaApi* api, DeBackend* backend, BackendInfo info)
      : api_(api), backend_(backend), info_(std::move(info)) {}
  ~CudaBackend() override { api_->destroy(backend_); }
  CudaBackend(const CudaBackend&) = delete;
  CudaBackend& operator=(const CudaBackend&) = delete;

  const BackendInfo& info() const override { return info_; }

  absl::StatusOr<std::shared_ptr<const ViewSet>> MakeViews(const RgbImage& image,
                                                           const ViewPlan& plan) override {
    std::vector<DeResizeJob> jobs;
    for (const ResizeJob& job : plan.jobs) {
      jobs.push_back({job.width, job.height, job.side, job.columns, job.rows, job.left, job.top});
    }
    DeViews* views = nullptr;
    DeError error = {};
    const DeCode code =
        api_->make_views(backend_, image.data(), image.width(), image.height(), jobs.data(),
                         static_cast<int32_t>(jobs.size()), &views, &error);
    if (code != DE_OK) return ToStatus(code, error);
    return std::make_shared<const CudaViewSet>(api_, views);
  }

  absl::StatusOr<std::unique_ptr<EncoderSlot>> CreateSlot() override {
    DeSlot* slot = nullptr;
    DeError error = {};
    const DeCode code = api_->create_slot(backend_, &slot, &error);
    if (code != DE_OK) return ToStatus(code, error);
    return std::make_unique<CudaSlot>(api_, slot);
  }

  std::vector<MemoryUse> Memory() const override {
    DeMemoryUse uses[8];
    const int32_t count = std::min<int32_t>(api_->memory(backend_, uses, 8), 8);
    std::vector<MemoryUse> memory;
    memory.reserve(count);
    for (int32_t i = 0; i < count; ++i)
      memory.push_back({uses[i].kind, uses[i].current, uses[i].peak});
    return memory;
  }

  size_t FreeMemory() const override {
    return CudaFreeMemory(info_.device).value_or(std::numeric_limits<size_t>::max());
  }

 private:
  const DeCudaApi* api_;
  DeBackend* backend_;
  BackendInfo info_;
};

std::vector<DeTensor> TensorsOf(const Checkpoint& checkpoint) {
  std::vector<DeTensor> tensors;
  for (const TensorSpec& spec : CheckpointLayout(checkpoint.config())) {
    if (!spec.used) continue;
    const auto found = checkpoint.tensors().find(spec.name);
    const StoredTensor& stored = found->second;
    DeTensor tensor = {};
    tensor.name = found->first.c_str();
    tensor.dtype = static_cast<int32_t>(stored.dtype);
    tensor.rank = static_cast<int32_t>(stored.shape.size());
    for (size_t i = 0; i < stored.shape.size(); ++i) tensor.shape[i] = stored.shape[i];
    tensor.data = stored.data;
    tensors.push_back(tensor);
  }
  return tensors;
}

}  // namespace

absl::StatusOr<int> CudaDeviceCount() {
  const absl::StatusOr<const DeCudaApi*> api = LoadCudaLibrary();
  if (!api.ok()) return api.status();
  int32_t count = 0;
  DeError error = {};
  if ((*api)->device_count(&count, &error) != DE_OK) {
    return absl::UnavailableError(absl::StrCat("no CUDA device: ", error.message));
  }
  if (count == 0) return absl::UnavailableError("no CUDA device: the driver lists none");
  return count;
}

absl::StatusOr<std::unique_ptr<Backend>> CreateCudaBackend(const Checkpoint& checkpoint,
                                                           const BackendOptions& options) {
  const absl::StatusOr<int> devices = CudaDeviceCount();
  if (!devices.ok()) return devices.status();
  if (options.device < 0 || options.device >= *devices) {
    return absl::InvalidArgumentError(absl::StrCat("CUDA device ", options.device,
                                                   " does not exist: there are ", *devices,
                                                   ", counted from 0"));
  }
  const DeCudaApi* api = *LoadCudaLibrary();
  DeError error = {};
  DeDeviceInfo device = {};
  DeCode code = api->device_info(options.device, &device, &error);
  if (code != DE_OK) return ToStatus(code, error);

  const ModelConfig& model = checkpoint.config();
  DeBackendOptions create = {};
  create.device = options.device;
  create.compute = static_cast<int32_t>(options.compute);
  create.sam_depth = model.sam_depth;
  create.clip_layers = model.clip_layers;
  create.global_blocks = model.global_blocks.data();
  create.global_block_count = static_cast<int32_t>(model.global_blocks.size());
  create.sides = options.sides.data();
  create.side_count = static_cast<int32_t>(options.sides.size());
  create.buckets = options.batch_buckets.data();
  create.bucket_count = static_cast<int32_t>(options.batch_buckets.size());
  create.graphs = options.graphs ? 1 : 0;
  create.release = [](void* context, const char* name) {
    static_cast<const Checkpoint*>(context)->Release(name);
  };
  create.release_context = const_cast<Checkpoint*>(&checkpoint);
  const std::vector<DeTensor> tensors = TensorsOf(checkpoint);
  DeBackend* backend = nullptr;
  code =
      api->create(&create, tensors.data(), static_cast<int32_t>(tensors.size()), &backend, &error);
  if (code != DE_OK) return ToStatus(code, error);

  BackendInfo info;
  info.kind = "cuda";
  info.device_name = device.name;
  info.device = options.device;
  info.pci_bus_id = CudaPciBusId(options.device);
  info.library = CudaBuild();
  info.compute = options.compute;
  info.sides = options.sides;
  info.batch_buckets = options.batch_buckets;
  return std::make_unique<CudaBackend>(api, backend, std::move(info));
}

}  // namespace deepencoder
