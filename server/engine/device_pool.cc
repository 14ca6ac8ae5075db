#include "server/engine/device_pool.h"

#include <algorithm>
#include <exception>
#include <new>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "encoder/model/config.h"
#include "server/engine/row_check.h"
#include "server/engine/thread_name.h"

namespace deepencoder {
namespace {

BatchPolicy WithBuckets(BatchPolicy policy, const std::vector<int>& buckets) {
  policy.buckets = buckets;
  return policy;
}

// What `call` returns or, of what it throws (a backend allocates), the status: a thread must not end by it.
template <typename Call>
absl::Status Caught(Call call) {
  try {
    return call();
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError("no memory for a call into the backend");
  } catch (const std::exception& e) {
    return absl::InternalError(std::string("in a call into the backend: ") + e.what());
  }
}

}  // namespace

DevicePool::DevicePool(DeviceSlots device, BatchPolicy policy, PoolContext context)
    : backend_(std::move(device.backend)),
      context_(std::move(context)),
      live_slots_(static_cast<int>(device.slots.size())),
      queue_(WithBuckets(std::move(policy), backend_->info().batch_buckets)) {
  try {
    // All before the first thread: whichever does not start, the slots go before the backend.
    for (std::unique_ptr<EncoderSlot>& slot : device.slots) {
      SlotState* state = slots_.emplace_back(std::make_unique<SlotState>()).get();
      state->slot = std::move(slot);
      state->index = static_cast<int>(slots_.size()) - 1;
    }
    for (const auto& slot : slots_) {
      const int threads = slot->slot->Overlaps() ? 2 : 1;
      for (int t = 0; t < threads; ++t) {
        threads_.emplace_back([this, state = slot.get()] { RunSlot(state); });
      }
    }
  } catch (const std::system_error&) {
    Stop();  // those that did start
    throw;
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

absl::StatusOr<std::shared_ptr<const ViewSet>> DevicePool::MakeViews(
    const RgbImage& image, const ViewPlan& plan,
    const std::function<void(const absl::Status&)>& on_stuck) {
  Watchdog::Call call(context_.watchdog, [&] {
    Log(absl::StrCat("is stuck: ", std::string(StuckStatus().message()), " making views"));
    const Waiting waiting = Count(0, +1);
    on_stuck(StuckStatus());
    HandBack(waiting);
  });
  absl::StatusOr<std::shared_ptr<const ViewSet>> views = absl::UnknownError("");
  const absl::Status status = Caught([&] {
    views = backend_->MakeViews(image, plan);
    return views.status();
  });
  if (!status.ok()) views = status;
  if (call.End()) HandBack(Count(0, -1));
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

int DevicePool::BucketOf(int count) const {
  const std::vector<int>& buckets = backend_->info().batch_buckets;
  const auto bucket = std::lower_bound(buckets.begin(), buckets.end(), count);
  return bucket == buckets.end() ? count : *bucket;
}

absl::Duration DevicePool::BatchTime(int side, int count) const {
  const auto found = batch_times_.find({side, BucketOf(count)});
  return found == batch_times_.end() ? absl::ZeroDuration() : found->second.Get();
}

Outlook DevicePool::Foresee(const ViewCounts& views, absl::Time deadline) {
  MutexLock lock(mutex_);
  const int slots = std::max(1, live_slots_.load(std::memory_order_relaxed));
  return queue_.Foresee(views, context_.clock->Now(), deadline, slots,
                        [this](int side, int count) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
                          return BatchTime(side, count);
                        });
}

DevicePool::Order DevicePool::NextOrder(SlotState* state, Batch* batch) {
  MutexLock lock(mutex_);
  while (!stopped_) {
    if (state->turn.Wanted()) return Order::kYield;
    if (std::exchange(state->rebuilds_seen, rebuilds_ordered_) != rebuilds_ordered_) {
      return Order::kRebuild;
    }
    const absl::Time now = context_.clock->Now();
    const absl::Time ready = queue_.ReadyAt();
    if (ready <= now) {
      const int64_t items = queue_.items(), bytes = queue_.bytes();
      *batch = queue_.Take(now, [this](int side, int count) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
        return BatchTime(side, count);
      });
      context_.gauge->Add(queue_.items() - items, queue_.bytes() - bytes);
      return Order::kRun;
    }
    changed_.WaitFor(mutex_, ready - now);
  }
  return Order::kStop;
}

void DevicePool::TakeBack(HeldTurn* turn) {
  if (turn->held()) return;
  {
    MutexLock lock(mutex_);  // so that NextOrder, which looks under it, does not sleep past it
    turn->Want();
  }
  changed_.NotifyAll();
  turn->TakeBack();
}

DevicePool::Work DevicePool::StillWanted(const Batch& batch, absl::Time now) {
  Work work;
  for (const BatchItem& item : batch.items) {
    if (const auto gone = item.task->request()->Gone(now)) {
      context_.events->OnGone(item.task, *gone);
    } else if (item.task->BeginWriting()) {
      work.items.push_back(item.task->Item(item.view));
      work.sources.push_back(&item);
    }
  }
  return work;
}

absl::Status DevicePool::RunBatch(SlotState* state, const Batch& batch, HeldTurn* turn) {
  const absl::Time started = context_.clock->Now();
  const Work work = StillWanted(batch, started);
  if (work.items.empty()) return absl::OkStatus();
  const int made = state->made;
  absl::Time computed;
  EncodeStats stats;
  absl::Status status = Encode(state, batch.side, work, &stats, [&] {
    computed = context_.clock->Now();
    turn->Pass();
  });
  const absl::Time ended = context_.clock->Now();
  bool finite = false;
  if (!status.ok()) {
    Fail(work, status);
  } else {
    context_.observer->OnBatch(backend_->info().device, batch.side,
                               static_cast<int>(work.items.size()), stats.bucket, stats.graph,
                               stats.compute_seconds);
    {
      MutexLock lock(mutex_);
      batch_times_[{batch.side, BucketOf(static_cast<int>(work.items.size()))}].Add(
          SecondsBetween(started, computed));
    }
    finite = Finish(work, batch.side, started, ended);
  }
  // Not before: Finish reads the rows, and an image that moves is written anew by another device.
  for (const BatchItem* item : work.sources) item->task->EndWriting();
  if (status.ok() && finite) {
    state->faults_in_a_row = 0;
    return absl::OkStatus();
  }
  TakeBack(turn);
  // The slot's other thread may have found the fault, too, and made it anew.
  if (state->slot == nullptr || state->made != made) return absl::OkStatus();
  return status.ok() ? CheckSlot(state, batch.side) : status;
}

absl::Status DevicePool::InSlot(SlotState* state, const std::function<void()>& on_late,
                                const std::function<absl::Status(EncoderSlot*)>& call) {
  Watchdog::Call wait(context_.watchdog, on_late);
  const int64_t number = state->turn.Enter();
  absl::Status status;
  if (wait.End()) {
    status = StuckStatus();  // the call that it waited for is
  } else {
    Watchdog::Call watched(context_.watchdog, on_late);
    EncoderSlot* const slot = state->slot.get();
    status = Caught([&] { return call(slot); });
    if (watched.End()) status = StuckStatus();
  }
  state->turn.Leave(number);  // now nothing is said of this call any more
  return status;
}

absl::Status DevicePool::Encode(SlotState* state, int side, const Work& work, EncodeStats* stats,
                                const std::function<void()>& computed) {
  const auto on_late = [&] {
    OnStuck(state, absl::StrCat("a batch of ", work.items.size(), " views of side ", side),
            work.sources);
  };
  return InSlot(state, on_late, [&](EncoderSlot* slot) {
    return slot->EncodeAhead(side, work.items, stats, computed);
  });
}

absl::Status DevicePool::CheckSlot(SlotState* state, int side) {
  Log(absl::StrCat("slot ", state->index, " made values that are not finite: checking it"));
  return InSlot(
      state, [&] { OnStuck(state, "a plain image"); },
      [&](EncoderSlot* slot) { return CheckWithPlainImage(backend_.get(), slot, side); });
}

void DevicePool::Fail(const Work& work, const absl::Status& why) {
  for (const BatchItem* item : work.sources) context_.events->OnFailed(item->task, why);
}

bool DevicePool::IdleAfter(const Work& work) {
  const ImageTask* first = work.sources.front()->task.get();
  for (const BatchItem* item : work.sources) {
    if (item->task.get() != first) return false;
  }
  MutexLock lock(mutex_);
  return queue_.items() == 0;
}

bool DevicePool::Finish(const Work& work, int side, absl::Time started, absl::Time ended) {
  bool finite = true;
  const bool idle = IdleAfter(work);
  for (size_t i = 0; i < work.items.size(); ++i) {
    const BatchItem& item = *work.sources[i];
    if (!RowsAreFinite(work.items[i], OutputGridOf(side))) {
      finite = false;
      context_.events->OnFailed(
          item.task, absl::InternalError("the embeddings of this image are not finite numbers"));
    } else if (item.task->FinishView(item.queued, started, ended)) {
      context_.events->OnEncoded(item.task, idle);
    }
  }
  return finite;
}

void DevicePool::RunSlot(SlotState* state) {
  NameThisThread(absl::StrCat("slot-", backend_->info().device, ".", state->index));
  while (true) {
    HeldTurn turn(&state->turn);
    if (state->slot == nullptr) return;
    Batch batch;
    absl::Status status;
    switch (NextOrder(state, &batch)) {
      case Order::kStop:
        return;
      case Order::kYield:
        break;
      case Order::kRebuild:
        status = absl::InternalError("the device cannot make views");
        break;
      case Order::kRun:
        for (const DroppedTask& dropped : batch.dropped) {
          context_.events->OnGone(dropped.task, dropped.reason);
        }
        status = RunBatch(state, batch, &turn);
        break;
    }
    if (!status.ok() && !absl::IsInvalidArgument(status)) Rebuild(state, status);
  }
}

void DevicePool::Rebuild(SlotState* state, const absl::Status& fault) {
  const std::string name = absl::StrCat("slot ", state->index);
  Log(absl::StrCat(name, " failed: ", fault.ToString()));
  {
    Watchdog::Call call(context_.watchdog, [&] { OnStuck(state, "its making anew"); });
    state->turn.AwaitNoCall();
    state->slot.reset();  // its memory first
    ++state->made;
    if (++state->faults_in_a_row >= kMaxFaultsInARow) {
      Log(absl::StrCat(name, " is given up after ", state->faults_in_a_row.load(),
                       " faults in a row"));
    } else {
      const absl::Status status = Caught([&] {
        absl::StatusOr<std::unique_ptr<EncoderSlot>> fresh = backend_->CreateSlot();
        if (!fresh.ok()) return fresh.status();
        state->slot = *std::move(fresh);
        return absl::OkStatus();
      });
      Log(status.ok() ? absl::StrCat(name, " was rebuilt")
                      : absl::StrCat(name, " is lost: it cannot be rebuilt: ", status.ToString()));
    }
  }
  // A slot that is stuck does not count already.
  if (state->slot == nullptr) {
    if (!state->stuck) HandBack(Count(-1, 0));
  } else if (state->stuck.exchange(false)) {
    HandBack(Count(+1, 0));
  }
}

absl::Status DevicePool::StuckStatus() const {
  return absl::InternalError(absl::StrCat("the device did not answer within ",
                                          absl::FormatDuration(context_.watchdog->timeout())));
}

void DevicePool::OnStuck(SlotState* state, const std::string& what,
                         const std::vector<const BatchItem*>& tasks) {
  Log(absl::StrCat("slot ", state->index, " is stuck: ", std::string(StuckStatus().message()), ": ",
                   what));
  Waiting waiting;
  if (!state->stuck.exchange(true)) waiting = Count(-1, 0);
  // First: an image of which other views wait fails, and does not move.
  for (const BatchItem* item : tasks) context_.events->OnStuck(item->task, StuckStatus());
  HandBack(waiting);
}

DevicePool::Waiting DevicePool::Count(int slots, int stuck_views) {
  Waiting waiting;
  bool lost_now;
  {
    MutexLock lock(mutex_);
    const int left = live_slots_.fetch_add(slots, std::memory_order_relaxed) + slots;
    stuck_views_ += stuck_views;
    lost_now = left == 0 || stuck_views_ > 0;
    if (lost_now == lost()) return std::nullopt;
    lost_.store(lost_now, std::memory_order_release);
    if (lost_now) {
      context_.gauge->Add(-queue_.items(), -queue_.bytes());
      waiting = queue_.Clear();
    }
  }
  Log(lost_now ? "does not work: what waits for it is handed back" : "works again");
  return waiting;
}

void DevicePool::HandBack(const Waiting& waiting) {
  if (waiting) context_.events->OnLost(*waiting);
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
  slots_.clear();
  for (const std::shared_ptr<ImageTask>& task : waiting) {
    context_.events->OnFailed(task, absl::UnavailableError("the server is shutting down"));
  }
}

}  // namespace deepencoder
