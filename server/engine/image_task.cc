#include "server/engine/image_task.h"

#include <algorithm>
#include <utility>

namespace deepencoder {

ImageTask::ImageTask(std::shared_ptr<Request> request, std::shared_ptr<const void> backend,
                     std::shared_ptr<const ViewSet> views, const ViewPlan& plan,
                     SequenceLayout layout, TaskRows rows, const StageSeconds& so_far)
    : request_(std::move(request)),
      backend_(std::move(backend)),
      views_(std::move(views)),
      plan_(plan),
      layout_(std::move(layout)),
      rows_(std::move(rows)),
      so_far_(so_far),
      unfinished_(views_->size()) {}

EncodeItem ImageTask::Item(int view) const {
  const ViewRows& place = layout_.views[view];
  const DType type = request_->job.dtype;
  return EncodeItem{.views = views_.get(),
                    .view = view,
                    .dtype = type,
                    .rows = rows_.data.get() + ReplyBytes(place.first_row, type),
                    .line_stride = ReplyBytes(place.line_stride, type)};
}

bool ImageTask::BeginWriting() {
  MutexLock lock(mutex_);
  if (has_left()) return false;
  ++writers_;
  return true;
}

void ImageTask::EndWriting() {
  std::function<void()> then;
  {
    MutexLock lock(mutex_);
    if (--writers_ == 0) then.swap(when_unwritten_);
  }
  if (then) then();
}

void ImageTask::WhenUnwritten(std::function<void()> then) {
  {
    MutexLock lock(mutex_);
    if (rows_.in_reply_memory && writers_ > 0 && !abandoned()) {
      when_unwritten_ = std::move(then);
      return;
    }
  }
  then();
}

void ImageTask::Abandon() {
  if (!rows_.in_reply_memory) return;
  request_->job.reply_memory->Abandon();
  std::function<void()> then;
  {
    MutexLock lock(mutex_);
    abandoned_.store(true, std::memory_order_release);
    then.swap(when_unwritten_);
  }
  if (then) then();
}

bool ImageTask::FinishView(absl::Time queued, absl::Time started, absl::Time ended) {
  MutexLock lock(mutex_);
  queued_ = std::min(queued_, queued);
  first_start_ = std::min(first_start_, started);
  last_end_ = std::max(last_end_, ended);
  return --unfinished_ == 0;
}

EncodeResult ImageTask::Result(absl::Time now) const {
  MutexLock lock(mutex_);
  EncodeResult result;
  result.data = rows_.data;
  result.in_reply_memory = rows_.in_reply_memory;
  result.bytes = ReplyBytes(layout_.rows, request_->job.dtype);
  result.rows = layout_.rows;
  result.dtype = request_->job.dtype;
  result.mode = plan_.mode;
  result.image_width = plan_.image_width;
  result.image_height = plan_.image_height;
  result.tiles = plan_.tiles;
  result.seconds = so_far_;
  result.seconds.queue = SecondsBetween(queued_, first_start_);
  result.seconds.compute = SecondsBetween(first_start_, last_end_);
  result.seconds.total = SecondsBetween(request_->arrival, now);
  return result;
}

void ImageTask::AddSteps(Timeline* timeline) const {
  MutexLock lock(mutex_);
  timeline->Add(Name(Stage::kQueue), queued_, std::max(queued_, first_start_));
  timeline->Add(Name(Stage::kCompute), first_start_, last_end_);
}

}  // namespace deepencoder
