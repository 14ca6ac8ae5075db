#include "server/engine/device_pool.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/engine/thread_name.h"

namespace deepencoder {
namespace {

BatchPolicy WithBuckets(BatchPolicy policy, const std::vector<int>& buckets) {
  policy.buckets = buckets;
  return policy;
}

}  // namespace

DevicePool::DevicePool(DeviceSlots device, BatchPolicy policy, PoolContext context)
    : backend_(std::move(device.backend)),
      context_(std::move(context)),
      live_slots_(static_cast<int>(device.slots.size())),
      queue_(WithBuckets(std::move(policy), backend_->info().batch_buckets)) {
  for (size_t i = 0; i < device.slots.size(); ++i) {
    threads_.emplace_back(
        [this, index = static_cast<int>(i), slot = std::move(device.slots[i])]() mutable {
          RunSlot(std::move(slot), index);
        });
  }
}

DevicePool::~DevicePool() { Stop(); }

void DevicePool::Log(const std::string& line) const {
  if (!context_.log) return;
  const BackendInfo& info = backend_->info();
  context_.log(info.kind + " device " + std::to_string(info.device) + ": " + line);
}

double DevicePool::Load() const {
  const int slots = std::max(1, live_slots_.load(std::memory_order_relaxed));
  return static_cast<double>(load_.load(std::memory_order_relaxed)) / slots;
}

bool DevicePool::Enqueue(const std::shared_ptr<ImageTask>& task) {
  {
    MutexLock lock(mutex_);
    if (stopped_ || lost()) return false;
    // Before a slot can take it, so that the gauge never goes below zero.
    context_.gauge->Add(task->view_count(), task->view_count() * task->bytes_per_view());
    queue_.Add(task, context_.clock->Now());
  }
  // One more view than fits into a batch is work for another slot.
  changed_.NotifyAll();
  return true;
}

absl::StatusOr<std::shared_ptr<const ViewSet>> DevicePool::MakeViews(const RgbImage& image,
                                                                     const ViewPlan& plan) {
  absl::StatusOr<std::shared_ptr<const ViewSet>> views = backend_->MakeViews(image, plan);
  {
    MutexLock lock(mutex_);
    view_faults_in_a_row_ = absl::IsInternal(views.status()) ? view_faults_in_a_row_ + 1 : 0;
    if (view_faults_in_a_row_ < kViewFaultsToRebuild) return views;
    view_faults_in_a_row_ = 0;
    ++rebuilds_ordered_;
  }
  changed_.NotifyAll();
  return views;
}

DevicePool::Order DevicePool::NextOrder(Batch* batch, int* rebuilds_seen) {
  MutexLock lock(mutex_);
  while (!stopped_) {
    if (std::exchange(*rebuilds_seen, rebuilds_ordered_) != rebuilds_ordered_) {
      return Order::kRebuild;
    }
    const absl::Time now = context_.clock->Now();
    const absl::Time ready = queue_.ReadyAt();
    if (ready <= now) {
      const int64_t items = queue_.items(), bytes = queue_.bytes();
      *batch = queue_.Take(now);
      context_.gauge->Add(queue_.items() - items, queue_.bytes() - bytes);
      return Order::kRun;
    }
    changed_.WaitFor(mutex_, ready - now);
  }
  return Order::kStop;
}

absl::Status DevicePool::RunBatch(EncoderSlot* slot, const Batch& batch) {
  // The last look before the launch: a client may have left since the batch was made.
  const absl::Time started = context_.clock->Now();
  std::vector<EncodeItem> items;
  std::vector<const BatchItem*> sources;
  for (const BatchItem& item : batch.items) {
    const Request& request = *item.task->request();
    if (const auto gone = request.Gone(started)) {
      context_.events->OnGone(item.task, *gone);
    } else if (!request.answered()) {
      items.push_back(item.task->Item(item.view));
      sources.push_back(&item);
    }
  }
  if (items.empty()) return absl::OkStatus();

  EncodeStats stats;
  absl::Status status = slot->Encode(batch.side, items, &stats);
  const absl::Time ended = context_.clock->Now();
  if (!status.ok()) {
    for (const BatchItem* item : sources) context_.events->OnFailed(item->task, status);
    return status;
  }
  context_.observer->OnBatch(backend_->info().device, batch.side, static_cast<int>(items.size()),
                             stats.bucket, stats.graph, stats.compute_seconds);
  for (const BatchItem* item : sources) {
    if (item->task->FinishView(item->queued, started, ended)) {
      context_.events->OnEncoded(item->task);
    }
  }
  return status;
}

void DevicePool::RunSlot(std::unique_ptr<EncoderSlot> slot, int index) {
  NameThisThread("slot-" + std::to_string(backend_->info().device) + "." + std::to_string(index));
  int faults_in_a_row = 0, rebuilds_seen = 0;
  while (slot != nullptr) {
    Batch batch;
    absl::Status status;
    switch (NextOrder(&batch, &rebuilds_seen)) {
      case Order::kStop:
        return;
      case Order::kRebuild:
        status = absl::InternalError("the device cannot make views");
        break;
      case Order::kRun:
        for (const DroppedTask& dropped : batch.dropped) {
          context_.events->OnGone(dropped.task, dropped.reason);
        }
        status = RunBatch(slot.get(), batch);
        break;
    }
    if (status.ok()) {
      if (!batch.items.empty()) faults_in_a_row = 0;
    } else if (!absl::IsInvalidArgument(status)) {
      slot = Rebuild(std::move(slot), index, status, ++faults_in_a_row);
    }
  }
  LoseSlot();
}

std::unique_ptr<EncoderSlot> DevicePool::Rebuild(std::unique_ptr<EncoderSlot> broken, int index,
                                                 const absl::Status& fault, int faults_in_a_row) {
  broken.reset();  // its memory first
  Log(absl::StrCat("slot ", index, " failed: ", fault.ToString()));
  if (faults_in_a_row >= kMaxFaultsInARow) {
    Log(absl::StrCat("slot ", index, " is given up after ", faults_in_a_row, " faults in a row"));
    return nullptr;
  }
  absl::StatusOr<std::unique_ptr<EncoderSlot>> fresh = backend_->CreateSlot();
  if (!fresh.ok()) {
    Log(absl::StrCat("slot ", index,
                     " is lost: it cannot be rebuilt: ", fresh.status().ToString()));
    return nullptr;
  }
  Log(absl::StrCat("slot ", index, " was rebuilt"));
  return *std::move(fresh);
}

void DevicePool::LoseSlot() {
  std::vector<std::shared_ptr<ImageTask>> waiting;
  {
    MutexLock lock(mutex_);
    if (live_slots_.fetch_sub(1, std::memory_order_relaxed) > 1) return;
    lost_.store(true, std::memory_order_release);
    context_.gauge->Add(-queue_.items(), -queue_.bytes());
    waiting = queue_.Clear();
  }
  Log("no slot is left");
  context_.events->OnLost(waiting);
}

void DevicePool::Stop() {
  std::vector<std::shared_ptr<ImageTask>> waiting;
  {
    MutexLock lock(mutex_);
    stopped_ = true;
    context_.gauge->Add(-queue_.items(), -queue_.bytes());
    waiting = queue_.Clear();
  }
  changed_.NotifyAll();
  for (std::thread& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
  for (const std::shared_ptr<ImageTask>& task : waiting) {
    context_.events->OnFailed(task, absl::UnavailableError("the server is shutting down"));
  }
}

}  // namespace deepencoder
