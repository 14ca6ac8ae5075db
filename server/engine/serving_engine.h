// The engine that serves.
//
// The life of a request
//   1. Encode (the caller's thread): what cannot be served is refused: draining, no device left, gone
//      already, a broken header, no tiles for it, no room (Admission). Nothing is refused for lack of
//      room later.
//   2. A thread of the DecodePool: content key, and the cache answers or has an equal request in flight
//      bring the answer (ResultCache); else pixels (DecodeImage), the plan, the least loaded device
//      (Assignment), its views (Backend::MakeViews), a buffer for the reply with its marker rows. All of
//      it then is an ImageTask, whose views wait in the device's BatchQueue.
//   3. Slot threads (DevicePool): an idle one takes a batch, of many images' views or of one's, and
//      encodes straight into the reply buffers. The last view makes the image done.
//   4. The ReplyThread: the result goes to the cache, its followers and the client.
// Deadline and cancellation are looked at on entry, before decoding, before rendering views, before
// queueing, when a batch is made, and right before its launch. When there is more to do than can be done,
// what is likely to be late is not begun (DropIfLate, BatchQueue). Whoever ends a request claims it
// (Request::ClaimAnswer), so `done` is called once; it is never called with a lock held.
//
// Locks. Each class has one mutex of its own, and none calls into another that locks while it holds it,
// with these exceptions, which give the order: SwapBackends' serialising lock before all others,
// DevicePool before QueueGauge and SlotTurn, ImageTask before Timeline, and any of them before the observer's own.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "encoder/image/view_plan.h"
#include "server/engine/admission.h"
#include "server/engine/backend_set.h"
#include "server/engine/clock.h"
#include "server/engine/decode_pool.h"
#include "server/engine/engine.h"
#include "server/engine/engine_options.h"
#include "server/engine/image_task.h"
#include "server/engine/likely_time.h"
#include "server/engine/queue_gauge.h"
#include "server/engine/reply_thread.h"
#include "server/engine/result_cache.h"
#include "server/engine/watchdog.h"

namespace deepencoder {

class ServingEngine final : public Engine, private PoolEvents {
 public:
  // `devices` as BuildPool makes them. `observer` and `clock` must outlive the engine.
  // Errors: INVALID_ARGUMENT (no device or a device without slots, rows of a wrong length, an option out
  // of range), RESOURCE_EXHAUSTED (no threads).
  static absl::StatusOr<std::unique_ptr<ServingEngine>> Create(EngineOptions options,
                                                               std::vector<DeviceSlots> devices,
                                                               SpecialRows special,
                                                               EngineObserver* observer,
                                                               const Clock* clock);
  // Fails what is still in flight with UNAVAILABLE. No Encode may be running or come. Waits for calls into
  // backends, also for those that are stuck.
  ~ServingEngine() override;

  void Encode(EncodeJob job, EncodeDone done) override;
  bool healthy() const override;
  bool Drain(absl::Time deadline) override;

  // New weights or devices: jobs that are not decoded yet go to `devices`; returns when the old ones have
  // finished theirs and are destroyed. No job is lost. Cached results are forgotten. `on_switch` (may be
  // empty) is called once new jobs go to `devices`, before the old ones have finished. Not to be called
  // from an engine thread, such as in `done`.
  // Errors as Create; nothing has changed then.
  absl::Status SwapBackends(std::vector<DeviceSlots> devices, SpecialRows special,
                            const std::function<void()>& on_switch = nullptr);

 private:
  ServingEngine(EngineOptions options, EngineObserver* observer, const Clock* clock);

  // ---- step 1
  // Refuses the request, or charges it.
  absl::Status Admit(Request* request);

  // ---- step 2
  void Submit(const std::shared_ptr<Request>& request);
  void Prepare(const std::shared_ptr<Request>& request);
  // True if the cache has answered, or will.
  bool AskCache(const std::shared_ptr<Request>& request, uint64_t generation);
  // OK: the views are queued, or the request has ended.
  absl::Status DecodeAndQueue(const std::shared_ptr<Request>& request,
                              const std::shared_ptr<BackendSet>& backends);
  absl::StatusOr<HeldImage> Decode(const EncodeJob& job) const;
  // False while every device is lost, or every decode thread is stuck in a call into one: nobody would come
  // for what waits then.
  bool CanServe() const;
  // What waits for a decode thread ends with UNAVAILABLE.
  void FailWaiting();
  // Where `bytes` of rows are to lie. Errors: INVALID_ARGUMENT (the job's memory is too small).
  absl::StatusOr<TaskRows> RowsFor(const EncodeJob& job, size_t bytes) const;
  // When to come back, for what a device is short of now and may have later.
  absl::Status WithHint(const absl::Status& status) const;
  // Its device was lost before it was encoded: from the start, on another.
  void Resubmit(const std::shared_ptr<Request>& request);

  // ---- step 3
  void OnEncoded(const std::shared_ptr<ImageTask>& task, bool idle) override;
  void OnFailed(const std::shared_ptr<ImageTask>& task, const absl::Status& why) override;
  void OnStuck(const std::shared_ptr<ImageTask>& task, const absl::Status& why) override;
  void OnGone(const std::shared_ptr<ImageTask>& task, DropReason reason) override;
  void OnLost(const std::vector<std::shared_ptr<ImageTask>>& waiting) override;

  // ---- step 4
  // Each claims the answer, does nothing if another has, and posts it to the reply thread.
  void Fail(const std::shared_ptr<Request>& request, const absl::Status& why);
  void Drop(const std::shared_ptr<Request>& request, DropReason reason, Stage before);
  // For who has claimed the answer.
  void PostDenial(const std::shared_ptr<Request>& request, const absl::Status& why);
  void Share(const std::shared_ptr<Request>& request, const EncodeResult& result);  // of another
  // Drop if nobody waits for it; true then.
  bool DropIfGone(const std::shared_ptr<Request>& request, Stage before);
  // Drop if it is likely to be late, by what waits for the devices and how long that takes, while others wait
  // that may not be: a decode in vain would make them late, too.
  bool DropIfLate(const std::shared_ptr<Request>& request, const BackendSet& backends);

  // On the reply thread or an idle slot's, the answer being claimed. A leader's followers get theirs.
  void Succeed(const ImageTask& task);
  void Deny(const Request& request, const absl::Status& why);
  void Reply(const Request& request, absl::StatusOr<EncodeResult> answer);

  std::shared_ptr<BackendSet> backends() const;
  std::shared_ptr<BackendSet> MakeSet(std::vector<DeviceSlots> devices, SpecialRows special)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(swap_);

  const EngineOptions options_;
  EngineObserver* const observer_;
  const Clock* const clock_;
  Admission admission_;
  QueueGauge gauge_;
  std::unique_ptr<ResultCache> cache_;  // null if off
  Watchdog watchdog_;
  std::atomic<bool> stopping_{false};
  std::atomic<int> stuck_threads_{0};  // of the decode pool

  Mutex times_mutex_;
  std::map<Mode, LikelyTime> times_
      ABSL_GUARDED_BY(times_mutex_);  // from Request::begun until the views are queued

  Mutex swap_;  // one SwapBackends at a time
  uint64_t generations_ ABSL_GUARDED_BY(swap_) = 0;
  mutable Mutex current_mutex_;
  std::shared_ptr<BackendSet> current_ ABSL_GUARDED_BY(current_mutex_);
  const std::shared_ptr<RetiredSets> retired_ = std::make_shared<RetiredSets>();

  std::unique_ptr<ReplyThread> replies_;
  std::unique_ptr<DecodePool> decode_pool_;  // last: its threads use all of the above
};

}  // namespace deepencoder
