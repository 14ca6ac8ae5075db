#include "server/engine/image_task.h"

#include <algorithm>
#include <utility>

namespace deepencoder {

ImageTask::ImageTask(std::shared_ptr<Request> request, std::shared_ptr<const void> backend,
                     std::shared_ptr<const ViewSet> views, const ViewPlan& plan,
                     SequenceLayout layout, std::shared_ptr<std::byte[]> rows,
                     const StageSeconds& so_far)
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
                    .rows = rows_.get() + ReplyBytes(place.first_row, type),
                    .line_stride = ReplyBytes(place.line_stride, type)};
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
  result.data = rows_;
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
