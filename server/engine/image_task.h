// An image whose views exist: what the batch queue and the slots work on.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "encoder/backend/backend.h"
#include "encoder/image/view_plan.h"
#include "encoder/model/config.h"
#include "encoder/model/geometry.h"
#include "server/engine/engine.h"
#include "server/engine/mutex.h"
#include "server/engine/request.h"

namespace deepencoder {

// Where the rows of an image go.
struct TaskRows {
  std::shared_ptr<std::byte[]> data;
  // Lies in the job's reply_memory: an image that fails is answered once no slot writes there any more.
  bool in_reply_memory = false;
};

// Thread-safe: slots finish different views of one image at once.
class ImageTask {
 public:
  // `backend` keeps alive what `views` were made by. `rows` has room for layout.rows rows of the job's type.
  ImageTask(std::shared_ptr<Request> request, std::shared_ptr<const void> backend,
            std::shared_ptr<const ViewSet> views, const ViewPlan& plan, SequenceLayout layout,
            TaskRows rows, const StageSeconds& so_far);

  const std::shared_ptr<Request>& request() const { return request_; }
  int view_count() const { return views_->size(); }
  int side(int view) const { return views_->side(view); }
  // Of backend memory, a view's share.
  int64_t bytes_per_view() const { return static_cast<int64_t>(views_->bytes()) / view_count(); }
  EncodeItem Item(int view) const;

  // Around a slot's call that writes rows. False: the image has left, and none may begin.
  bool BeginWriting();
  void EndWriting();
  // The image ends here before all of its rows are written: it failed, is not wanted, or moves to another device.
  // True for the one caller who may say which, by WhenUnwritten.
  bool Leave() { return !left_.exchange(true, std::memory_order_acq_rel); }
  bool has_left() const { return left_.load(std::memory_order_acquire); }
  // Runs `then` when no slot writes its rows any more, now or from EndWriting. At once if the rows are the engine's
  // own, for then it does not matter.
  void WhenUnwritten(std::function<void()> then);
  // A slot's call is stuck, and may write whenever it goes on: WhenUnwritten does not wait for it, from now on.
  void Abandon();
  bool abandoned() const { return abandoned_.load(std::memory_order_acquire); }

  // A view's rows are written. True for the last one: nothing refers to the rows then.
  bool FinishView(absl::Time queued, absl::Time started, absl::Time ended);

  // Call these once FinishView has returned true.
  EncodeResult Result(absl::Time now) const;
  // The wait for a slot and the computing. (Views of one image may still wait when others are computed.)
  void AddSteps(Timeline* timeline) const;

 private:
  const std::shared_ptr<Request> request_;
  // Destroyed in reverse order: the views before what they lie in.
  const std::shared_ptr<const void> backend_;
  const std::shared_ptr<const ViewSet> views_;
  const ViewPlan plan_;
  const SequenceLayout layout_;
  const TaskRows rows_;
  const StageSeconds so_far_;  // decode, views and assemble
  std::atomic<bool> left_{false};
  std::atomic<bool> abandoned_{false};  // set under mutex_

  mutable Mutex mutex_;
  int unfinished_ ABSL_GUARDED_BY(mutex_);
  int writers_ ABSL_GUARDED_BY(mutex_) = 0;
  std::function<void()> when_unwritten_ ABSL_GUARDED_BY(mutex_);
  absl::Time queued_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteFuture();
  absl::Time first_start_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteFuture();
  absl::Time last_end_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
};

// Bytes of the reply of `rows` rows.
inline size_t ReplyBytes(int rows, DType type) {
  return static_cast<size_t>(rows) * kEmbeddingWidth * SizeOf(type);
}

}  // namespace deepencoder
