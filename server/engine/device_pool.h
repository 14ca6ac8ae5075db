// One device: its backend, its batch queue and its slots, each with one or two threads that take batches
// (slot_turn.h).
//
// A slot whose Encode fails with anything but INVALID_ARGUMENT is destroyed and made anew; its batch
// fails, nothing else does. A slot that cannot be made anew, or that fails batch after batch, is lost.
// With its last slot the device is lost: what waits there is handed back, and nothing is accepted.
//
// A call into the backend that takes longer than the watchdog allows is stuck: its images fail, and its
// slot does not count until the call has returned and the slot has been made anew. While every slot that
// is left is stuck, or MakeViews is, the device is lost, too, but may come back.
//
// Values that are not finite fail their images. Then the slot is given a plain image: only if that comes
// out so as well it is a fault of the device, for a client could make its own image come out so.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "encoder/backend/backend.h"
#include "server/engine/batch_queue.h"
#include "server/engine/clock.h"
#include "server/engine/engine.h"
#include "server/engine/image_task.h"
#include "server/engine/likely_time.h"
#include "server/engine/mutex.h"
#include "server/engine/queue_gauge.h"
#include "server/engine/slot_turn.h"
#include "server/engine/watchdog.h"

namespace deepencoder {

// A device ready to serve (pool_builder.h makes them). The slots go before the backend.
struct DeviceSlots {
  std::unique_ptr<Backend> backend;
  std::vector<std::unique_ptr<EncoderSlot>> slots;
};

// Hears how images end. Called from slot threads without locks held; must be quick.
class PoolEvents {
 public:
  virtual ~PoolEvents() = default;
  // All rows are written. `idle`: the slot has nothing else to do, so this need not be quick.
  virtual void OnEncoded(const std::shared_ptr<ImageTask>& task, bool idle) = 0;
  // Views of it may still be in other slots.
  virtual void OnFailed(const std::shared_ptr<ImageTask>& task, const absl::Status& why) = 0;
  // The same, and the call that was to write its rows may do so at any time to come.
  virtual void OnStuck(const std::shared_ptr<ImageTask>& task, const absl::Status& why) = 0;
  // Was not encoded, for nobody waits for it. May come more than once for an image.
  virtual void OnGone(const std::shared_ptr<ImageTask>& task, DropReason reason) = 0;
  // The device is lost; `waiting` was still queued there.
  virtual void OnLost(const std::vector<std::shared_ptr<ImageTask>>& waiting) = 0;
};

// What pools share; all must outlive them.
struct PoolContext {
  PoolEvents* events;
  EngineObserver* observer;
  QueueGauge* gauge;
  const Clock* clock;
  Watchdog* watchdog;
  std::function<void(const std::string&)> log;  // may be empty; thread-safe
};

// Thread-safe.
class DevicePool {
 public:
  // Starts the slots' threads. `policy.buckets` is taken from the backend.
  // Throws std::system_error if a thread is not to be had.
  DevicePool(DeviceSlots device, BatchPolicy policy, PoolContext context);
  ~DevicePool();  // Stop

  // Backend::MakeViews. Faults are noticed: a device that cannot make views would not be given batches
  // to fail, so after some in a row its slots are rebuilt, or lost, as after a batch's. `on_stuck` hears,
  // on another thread and before this returns, that the call is stuck.
  absl::StatusOr<std::shared_ptr<const ViewSet>> MakeViews(
      const RgbImage& image, const ViewPlan& plan,
      const std::function<void(const absl::Status&)>& on_stuck);

  // What an image with such views can expect if it is queued now.
  Outlook Foresee(const ViewCounts& views, absl::Time deadline);

  // False, and nothing is done, if the device is lost or stopped.
  bool Enqueue(const std::shared_ptr<ImageTask>& task);

  // Ends the slots' threads after the batches they are at; what waits fails with UNAVAILABLE. Waits for
  // calls that are stuck.
  void Stop();

  bool lost() const { return lost_.load(std::memory_order_acquire); }

  // Work assigned here and not done, in any unit as long as it is the same for all pools.
  void AddLoad(int64_t work) { load_.fetch_add(work, std::memory_order_relaxed); }
  // Per slot that is left.
  double Load() const;

 private:
  // A slot and what its threads keep of it. The turn guards what has no lock of its own.
  struct SlotState {
    std::unique_ptr<EncoderSlot> slot;  // null: lost
    int index = 0;
    SlotTurn turn;
    int made = 0;           // how often it was made anew
    int rebuilds_seen = 0;  // of rebuilds_ordered_
    std::atomic<int> faults_in_a_row{0};
    std::atomic<bool> stuck{false};  // set by the watchdog during a call that it watches
  };
  struct Work {
    std::vector<EncodeItem> items;
    std::vector<const BatchItem*> sources;  // of the items
  };

  // What a slot's thread does.
  void RunSlot(SlotState* state);
  // The batch size that `count` views run as.
  int BucketOf(int count) const;
  // How long such a batch is likely to take; 0 if there was none yet.
  absl::Duration BatchTime(int side, int count) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  enum class Order : uint8_t { kRun, kYield, kRebuild, kStop };
  // What an idle slot is to do next; waits for it. kRun sets *batch, which may be empty but for what was
  // dropped. kYield: its other thread wants the turn back. kRebuild follows a change of rebuilds_ordered_.
  Order NextOrder(SlotState* state, Batch* batch);
  void TakeBack(HeldTurn* turn);
  // Encodes what is still wanted of the batch. Passes the turn when the device is done with it; has it
  // again if there was a fault. A good batch ends a row of faults; one of nothing does not.
  absl::Status RunBatch(SlotState* state, const Batch& batch, HeldTurn* turn);
  // What is still wanted of it now: a client may have gone since the batch was made. BeginWriting is called.
  Work StillWanted(const Batch& batch, absl::Time now);
  // `call`, numbered among the slot's (SlotTurn) and watched, its wait for another call too; what it throws is a
  // status.
  absl::Status InSlot(SlotState* state, const std::function<void()>& on_late,
                      const std::function<absl::Status(EncoderSlot*)>& call);
  // The backend's Encode. `computed` as the backend's.
  absl::Status Encode(SlotState* state, int side, const Work& work, EncodeStats* stats,
                      const std::function<void()>& computed);
  void Fail(const Work& work, const absl::Status& why);
  // Whether nothing waits, neither here nor in `work` behind its first image.
  bool IdleAfter(const Work& work);
  // Tells of the views that are encoded; false if some were not finite, which failed.
  bool Finish(const Work& work, int side, absl::Time started, absl::Time ended);
  // After values that are not finite: is it the slot?
  absl::Status CheckSlot(SlotState* state, int side);
  // After a fault: makes state->slot anew, null if the slot is lost. For who has the turn.
  void Rebuild(SlotState* state, const absl::Status& fault);

  // What waited for a device that is lost now; nothing if it is not, or was before.
  using Waiting = std::optional<std::vector<std::shared_ptr<ImageTask>>>;

  // The watchdog's: `what` is stuck, and `tasks` with it.
  void OnStuck(SlotState* state, const std::string& what,
               const std::vector<const BatchItem*>& tasks = {});
  absl::Status StuckStatus() const;
  // Changes the numbers of slots that work and of MakeViews calls that are stuck.
  Waiting Count(int slots, int stuck_views);
  void HandBack(const Waiting& waiting);
  void Log(const std::string& line) const;

  // Faults of a slot, without a good batch between, after which it counts as lost although it can be
  // rebuilt: a device that fails every batch must not look healthy.
  static constexpr int kMaxFaultsInARow = 5;
  // Failures of MakeViews in a row that cast doubt on the device.
  static constexpr int kViewFaultsToRebuild = 3;

  const std::unique_ptr<Backend> backend_;
  const PoolContext context_;
  std::atomic<bool> lost_{false};
  std::atomic<int> live_slots_;  // those that work; changed under mutex_
  std::atomic<int64_t> load_{0};

  Mutex mutex_;
  CondVar changed_;
  BatchQueue queue_ ABSL_GUARDED_BY(mutex_);
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::map<std::pair<int, int>, LikelyTime> batch_times_ ABSL_GUARDED_BY(mutex_);  // side, bucket
  int stuck_views_ ABSL_GUARDED_BY(mutex_) = 0;
  int view_faults_in_a_row_ ABSL_GUARDED_BY(mutex_) = 0;
  int rebuilds_ordered_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<std::unique_ptr<SlotState>> slots_;
  std::vector<std::thread> threads_;
};

}  // namespace deepencoder
