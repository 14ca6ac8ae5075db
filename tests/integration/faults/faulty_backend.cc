// server/backend_factory.h for the program whose devices fail on command.
#include <chrono>
#include <cstring>
#include <new>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "encoder/model/config.h"
#include "encoder/model/geometry.h"
#include "server/backend_factory.h"
#include "tests/integration/faults/fault_rules.h"
#include "tests/integration/faults/hashed_backend.h"
#include "tests/integration/faults/process_faults.h"

namespace deepencoder {
namespace {

// What a call of `site` is to return in place of its own result, if anything. Takes its time, or throws.
absl::Status Fault(const std::string& site) {
  const std::optional<faults::Rule> rule = faults::Next(site);
  if (!rule) return absl::OkStatus();
  if (rule->action == "error") return absl::InternalError(absl::StrCat("injected fault: ", site));
  if (rule->action == "memory") {
    return absl::ResourceExhaustedError(absl::StrCat("injected lack of memory: ", site));
  }
  if (rule->action == "throw") throw std::bad_alloc();
  if (rule->action == "slow") {
    std::this_thread::sleep_for(std::chrono::milliseconds(rule->Number("ms", 100)));
  }
  if (rule->action == "hang") faults::WaitWhileThere(*rule);
  return absl::OkStatus();
}

void FillRows(const EncodeItem& item, int lines, int value) {
  const size_t line_bytes = kEmbeddingWidth * SizeOf(item.dtype) * lines;
  for (int line = 0; line < lines; ++line) {
    std::memset(item.rows + line * item.line_stride, value, line_bytes);
  }
}

class FaultySlot final : public EncoderSlot {
 public:
  explicit FaultySlot(std::unique_ptr<EncoderSlot> slot) : slot_(std::move(slot)) {}

  absl::Status Encode(int side, std::span<const EncodeItem> items, EncodeStats* stats) override {
    if (absl::Status fault = Fault("encode"); !fault.ok()) return fault;
    const absl::Status status = slot_->Encode(side, items, stats);
    const std::optional<faults::Rule> rule = faults::Next("rows");
    if (!status.ok() || !rule) return status;
    const int lines = OutputGridOf(side);
    if (rule->action == "nan") {
      for (const EncodeItem& item : items) FillRows(item, lines, 0xFF);
      return status;
    }
    for (const EncodeItem& item : items) FillRows(item, lines / 2, 0x55);
    return absl::InternalError("injected fault: rows");
  }

 private:
  const std::unique_ptr<EncoderSlot> slot_;
};

class FaultyBackend final : public Backend {
 public:
  explicit FaultyBackend(std::unique_ptr<Backend> backend) : backend_(std::move(backend)) {}

  const BackendInfo& info() const override { return backend_->info(); }
  absl::StatusOr<std::shared_ptr<const ViewSet>> MakeViews(const RgbImage& image,
                                                           const ViewPlan& plan) override {
    if (absl::Status fault = Fault("views"); !fault.ok()) return fault;
    return backend_->MakeViews(image, plan);
  }
  absl::StatusOr<std::unique_ptr<EncoderSlot>> CreateSlot() override {
    if (absl::Status fault = Fault("slot"); !fault.ok()) return fault;
    absl::StatusOr<std::unique_ptr<EncoderSlot>> slot = backend_->CreateSlot();
    if (!slot.ok()) return slot.status();
    return std::make_unique<FaultySlot>(*std::move(slot));
  }
  std::vector<MemoryUse> Memory() const override { return backend_->Memory(); }
  size_t FreeMemory() const override { return backend_->FreeMemory(); }

 private:
  const std::unique_ptr<Backend> backend_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Backend>> MakeBackend(bool /*cuda*/, const Checkpoint& checkpoint,
                                                     const BackendOptions& options) {
  if (absl::Status fault = Fault("backend"); !fault.ok()) return fault;
  auto backend = CreateHashedBackend(checkpoint, options);
  if (!backend.ok()) return backend.status();
  faults::BeginProcessFaults();
  return std::make_unique<FaultyBackend>(*std::move(backend));
}

}  // namespace deepencoder
