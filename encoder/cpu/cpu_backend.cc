// The CPU behind encoder/backend/backend.h.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "encoder/backend/backend.h"
#include "encoder/base/processors.h"
#include "encoder/cpu/deep_encoder.h"
#include "encoder/cpu/host_memory.h"
#include "encoder/cpu/parallel.h"
#include "encoder/image/views.h"
#include "encoder/model/config.h"

namespace deepencoder {
namespace cpu {
namespace {

// Bytes in use and the most there ever were. Thread-safe.
class ByteCount {
 public:
  void Add(size_t bytes) {
    const size_t now = current_.fetch_add(bytes) + bytes;
    size_t peak = peak_.load();
    while (now > peak && !peak_.compare_exchange_weak(peak, now)) {
    }
  }
  void Remove(size_t bytes) { current_.fetch_sub(bytes); }
  MemoryUse Use(std::string kind) const { return {std::move(kind), current_.load(), peak_.load()}; }

 private:
  std::atomic<size_t> current_{0}, peak_{0};
};

class CpuViewSet : public ViewSet {
 public:
  CpuViewSet(std::vector<View> views, std::shared_ptr<ByteCount> count)
      : views_(std::move(views)), count_(std::move(count)) {
    for (const View& view : views_) bytes_ += view.rgb.size();
    count_->Add(bytes_);
  }
  ~CpuViewSet() override { count_->Remove(bytes_); }
  CpuViewSet(const CpuViewSet&) = delete;
  CpuViewSet& operator=(const CpuViewSet&) = delete;

  int size() const override { return static_cast<int>(views_.size()); }
  int side(int view) const override { return views_[view].side; }
  size_t bytes() const override { return bytes_; }
  const uint8_t* rgb(int view) const { return views_[view].rgb.data(); }

 private:
  const std::vector<View> views_;
  size_t bytes_ = 0;
  const std::shared_ptr<ByteCount> count_;  // outlives the backend if this does
};

// What a backend and its slots share.
struct Model {
  BackendInfo info;
  int threads;
  DeepEncoder encoder;
  std::shared_ptr<ByteCount> workspace_bytes = std::make_shared<ByteCount>();
  std::shared_ptr<ByteCount> view_bytes = std::make_shared<ByteCount>();
};

absl::Status FromException(const char* doing) {
  try {
    throw;
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError(absl::StrCat(doing, ": out of memory"));
  } catch (const dnnl::error& error) {
    if (error.status == dnnl_out_of_memory) {
      return absl::ResourceExhaustedError(absl::StrCat(doing, ": out of memory in oneDNN"));
    }
    return absl::InternalError(absl::StrCat(doing, ": oneDNN: ", error.what()));
  } catch (const std::exception& error) {
    return absl::InternalError(absl::StrCat(doing, ": ", error.what()));
  }
}

class CpuSlot : public EncoderSlot {
 public:
  CpuSlot(std::shared_ptr<const Model> model, Workspace workspace)
      : model_(std::move(model)), workspace_(std::move(workspace)) {
    model_->workspace_bytes->Add(workspace_.arena.bytes());
  }
  ~CpuSlot() override { model_->workspace_bytes->Remove(workspace_.arena.bytes()); }
  CpuSlot(const CpuSlot&) = delete;
  CpuSlot& operator=(const CpuSlot&) = delete;

  absl::Status Encode(int side, std::span<const EncodeItem> items, EncodeStats* stats) override {
    std::vector<const uint8_t*> views;
    if (absl::Status status = Check(side, items, &views); !status.ok()) return status;
    const auto start = std::chrono::steady_clock::now();
    try {
      const ThreadScope threads(model_->threads);
      const int lines = OutputGridOf(side);
      model_->encoder.Encode(side, views, workspace_, [&](size_t view, const float* tokens) {
        const EncodeItem& item = items[view];
        const size_t line_values = static_cast<size_t>(lines) * kEmbeddingWidth;
        for (int y = 0; y < lines; ++y) {
          Convert(tokens + y * line_values, item.dtype, item.rows + y * item.line_stride,
                  line_values);
        }
      });
    } catch (...) {
      return FromException("encoding");
    }
    if (stats != nullptr) {
      *stats = {
          .bucket = static_cast<int>(items.size()),
          .graph = GraphUse::kNone,
          .compute_seconds =
              std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count()};
    }
    return absl::OkStatus();
  }

 private:
  absl::Status Check(int side, std::span<const EncodeItem> items,
                     std::vector<const uint8_t*>* views) const {
    const std::vector<int>& sides = model_->info.sides;
    if (std::find(sides.begin(), sides.end(), side) == sides.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("views of side ", side, " were not prepared for"));
    }
    const size_t most = model_->info.batch_buckets.back();
    if (items.empty() || items.size() > most) {
      return absl::InvalidArgumentError(
          absl::StrCat("a batch has 1 to ", most, " views, not ", items.size()));
    }
    for (const EncodeItem& item : items) {
      const auto* set = dynamic_cast<const CpuViewSet*>(item.views);
      if (set == nullptr || item.view < 0 || item.view >= set->size()) {
        return absl::InvalidArgumentError("a batch item is not a view of this backend");
      }
      if (set->side(item.view) != side) {
        return absl::InvalidArgumentError(
            absl::StrCat("a view of side ", set->side(item.view), " in a batch of side ", side));
      }
      views->push_back(set->rgb(item.view));
    }
    return absl::OkStatus();
  }

  const std::shared_ptr<const Model> model_;
  Workspace workspace_;
};

class CpuBackend : public Backend {
 public:
  explicit CpuBackend(std::shared_ptr<const Model> model) : model_(std::move(model)) {}

  const BackendInfo& info() const override { return model_->info; }

  absl::StatusOr<std::shared_ptr<const ViewSet>> MakeViews(const RgbImage& image,
                                                           const ViewPlan& plan) override {
    try {
      return std::make_shared<CpuViewSet>(RenderViews(image, plan), model_->view_bytes);
    } catch (...) {
      return FromException("making views");
    }
  }

  absl::StatusOr<std::unique_ptr<EncoderSlot>> CreateSlot() override {
    try {
      return std::make_unique<CpuSlot>(model_, model_->encoder.NewWorkspace(model_->threads));
    } catch (...) {
      return FromException("creating a slot");
    }
  }

  std::vector<MemoryUse> Memory() const override {
    const size_t weights = model_->encoder.weight_bytes();
    return {{"weights", weights, weights},
            model_->workspace_bytes->Use("workspace"),
            model_->view_bytes->Use("views")};
  }

  size_t FreeMemory() const override { return FreeHostMemory(); }

 private:
  const std::shared_ptr<const Model> model_;
};

absl::Status Check(const BackendOptions& options) {
  if (options.compute == DType::kFp16) {
    return absl::InvalidArgumentError("the CPU computes in bf16 or fp32, not in fp16");
  }
  if (options.compute == DType::kBf16 && !Cpu().amx_bf16) {
    return absl::InvalidArgumentError(absl::StrCat("bf16 on the CPU needs AMX, which ", Cpu().name,
                                                   " lacks (or Linux before 5.16): use fp32"));
  }
  if (options.threads < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("threads must be 0 (all cores) or more, not ", options.threads));
  }
  if (options.sides.empty()) return absl::InvalidArgumentError("no view side given");
  for (const int side : options.sides) {
    if (!IsViewSide(side))
      return absl::InvalidArgumentError(absl::StrCat("a view cannot have side ", side));
  }
  if (options.batch_buckets.empty() || options.batch_buckets.front() < 1 ||
      !std::is_sorted(options.batch_buckets.begin(), options.batch_buckets.end())) {
    return absl::InvalidArgumentError("batch buckets must be positive and ascending");
  }
  return absl::OkStatus();
}

std::string DeviceName(DType compute) {
  static constexpr const char* kIsaNames[] = {"baseline", "avx2", "avx512"};
  return absl::StrCat(Cpu().name, ", ",
                      compute == DType::kBf16 ? "amx" : kIsaNames[static_cast<int>(Cpu().best())]);
}

}  // namespace
}  // namespace cpu

absl::StatusOr<std::unique_ptr<Backend>> CreateCpuBackend(const Checkpoint& checkpoint,
                                                          const BackendOptions& options) {
  if (absl::Status status = cpu::Check(options); !status.ok()) return status;
  const int threads = options.threads > 0 ? options.threads : AvailableProcessors();
  const BackendInfo info = {.kind = "cpu",
                            .device_name = cpu::DeviceName(options.compute),
                            .device = 0,
                            .pci_bus_id = "",
                            .library = "",
                            .compute = options.compute,
                            .sides = options.sides,
                            .batch_buckets = options.batch_buckets};
  try {
    const cpu::ThreadScope scope(threads);
    const cpu::Compute compute = cpu::Compute::For(options.compute, cpu::Cpu().best());
    return std::make_unique<cpu::CpuBackend>(std::shared_ptr<const cpu::Model>(
        new cpu::Model{info, threads, cpu::DeepEncoder(checkpoint, compute, options.sides)}));
  } catch (...) {
    return cpu::FromException("loading the model");
  }
}

}  // namespace deepencoder
