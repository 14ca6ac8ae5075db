// Which views ride in the next batch: the batcher's policy as a data structure, without threads, locks or
// a clock of its own.
//
// Behaviour
//   - One queue a view side. A batch holds views of one side, of one or many images; the views of one
//     image may ride in different batches.
//   - Work-conserving: with max_delay 0, Take gives a batch whenever anything waits. While every slot is
//     busy nobody calls Take, so the queue grows, and the next batch is as large as what has come.
//   - Fair: a batch is filled in rounds of one view an image. An image that got a view into a batch goes
//     to the end of the line with its other views. So n images in the queue each get a place in the next
//     ceil(n / largest bucket) batches of their side, however many views any of them has.
//   - Urgent first: within a round, images are taken in the order of DueTime (request.h) since they last
//     got a place. No starvation: nobody is overtaken for longer than `patience`.
//   - Between sides, the one whose head is due first is taken.
//   - Views of requests that are gone or already answered leave at the next Take and are not encoded.
//   - Nothing is computed in vain where it can be helped. While more waits than the largest batch holds,
//     images whose deadline would pass in the batch or soon after leave, as long as the others fill it: else a server that
//     is asked for more than it can do would encode just those that are about to be late. And where nobody
//     could be in time in a batch as large as what waits, it is made smaller. Foresee tells before an image
//     is decoded whether it would come to that.
//
// Batch sizes. A batch of n views runs as the smallest bucket that holds it; the rest is padding, which
// costs as much as real views. Take gives all that wait, up to the largest bucket, unless more than
// max_padding of the bucket would be padding; then it fills the next smaller bucket and leaves the rest.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "server/engine/image_task.h"

namespace deepencoder {

struct BatchPolicy {
  std::vector<int> buckets = {1, 2, 4, 8, 16, 32};  // ascending, not empty
  // How long an idle slot leaves a batch that is not full in the hope of company. 0: not at all.
  absl::Duration max_delay = absl::ZeroDuration();
  // See DueTime. Deadlines further away than this do not count yet.
  absl::Duration patience = absl::Milliseconds(100);
  // Of a bucket, the largest part that may be padding; 0: always full buckets, 1: never split.
  double max_padding = 0.25;
};

struct BatchItem {
  std::shared_ptr<ImageTask> task;
  int view;
  absl::Time queued;
};

struct DroppedTask {
  std::shared_ptr<ImageTask> task;
  DropReason reason;
};

struct Batch {
  int side = 0;
  std::vector<BatchItem> items;
  std::vector<DroppedTask> dropped;  // gone, or too late; a task may be named once a side
};

// Of an image that is not in the queue yet.
struct Outlook {
  // Until it is encoded; with as much as it must have left when its turn comes, if `crowded`.
  absl::Duration time;
  // More waits than fits into a batch: others take its place if it does not come.
  bool crowded = false;
};

// Not thread-safe.
class BatchQueue {
 public:
  explicit BatchQueue(BatchPolicy policy);

  // All views of `task` wait from now on.
  void Add(const std::shared_ptr<ImageTask>& task, absl::Time now);

  // How long a batch of `count` views of `side` is likely to take.
  using BatchTime = std::function<absl::Duration(int side, int count)>;

  // The next batch; without items if none is ready.
  Batch Take(absl::Time now, const BatchTime& batch_time = InNoTime);

  // What an image with such views can expect if it is added now and nothing comes after it.
  Outlook Foresee(const ViewCounts& views, absl::Time now, absl::Time deadline, int slots,
                  const BatchTime& batch_time) const;

  // When Take will have a batch although nothing more is added: InfinitePast if a side is full, a time
  // that may have passed, or InfiniteFuture if nothing waits.
  absl::Time ReadyAt() const;

  // Everything that waits, each task once.
  std::vector<std::shared_ptr<ImageTask>> Clear();

  int64_t items() const { return items_; }
  int64_t bytes() const { return bytes_; }  // of backend memory, of the views that wait

  // How many of `waiting` views to take; public for its tests.
  int BatchSize(int waiting) const;

 private:
  // Due first, then first come.
  using Place = std::pair<absl::Time, uint64_t>;
  // The views of one image that wait in one side's line.
  struct Waiting {
    std::shared_ptr<ImageTask> task;
    std::vector<int> views;  // taken from the back
    absl::Time queued;
  };
  struct Line {
    std::map<Place, Waiting> waiting;
    int items = 0;
  };

  static absl::Duration InNoTime(int /*side*/, int /*count*/) { return absl::ZeroDuration(); }
  // Of `count` views, in the largest batches.
  absl::Duration TimeOf(int side, int count, const BatchTime& batch_time) const;
  // Views of the line for a batch that someone can be in time with.
  int FittingSize(int side, const Line& line, absl::Time now, const BatchTime& batch_time) const;
  // Drops those that would be late at `end`, while `count` views are left.
  void DropLate(Line* line, int count, absl::Time end, std::vector<DroppedTask>* dropped);
  Place NewPlace(const ImageTask& task, absl::Time now);
  absl::Time ReadyAt(const Line& line) const;
  void DropGone(absl::Time now, std::vector<DroppedTask>* dropped);
  // Takes `count` <= line->items views, and sends the images that gave some to the end of the line.
  void Fill(Line* line, int count, absl::Time now, std::vector<BatchItem>* items);
  void Account(const ImageTask& task, int views);

  const BatchPolicy policy_;
  std::map<int, Line> lines_;  // by side
  uint64_t places_given_ = 0;
  int64_t items_ = 0, bytes_ = 0;
};

}  // namespace deepencoder
