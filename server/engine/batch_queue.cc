#include "server/engine/batch_queue.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace deepencoder {
namespace {

// Batch times that an image should have left where others wait in its place. With one, the oldest that can
// just be in time would be taken, always, and any delay on the reply's way would make them late.
constexpr int kMargin = 2;

}  // namespace

BatchQueue::BatchQueue(BatchPolicy policy) : policy_(std::move(policy)) {}

BatchQueue::Place BatchQueue::NewPlace(const ImageTask& task, absl::Time now) {
  return {DueTime(task.request()->job.deadline, now, policy_.patience), places_given_++};
}

void BatchQueue::Account(const ImageTask& task, int views) {
  items_ += views;
  bytes_ += views * task.bytes_per_view();
}

void BatchQueue::Add(const std::shared_ptr<ImageTask>& task, absl::Time now) {
  std::map<int, std::vector<int>> by_side;
  for (int view = task->view_count() - 1; view >= 0; --view) {
    by_side[task->side(view)].push_back(view);
  }
  Account(*task, task->view_count());
  for (auto& [side, views] : by_side) {
    Line& line = lines_[side];
    line.items += static_cast<int>(views.size());
    line.waiting.emplace(NewPlace(*task, now),
                         Waiting{.task = task, .views = std::move(views), .queued = now});
  }
}

int BatchQueue::BatchSize(int waiting) const {
  const std::vector<int>& buckets = policy_.buckets;
  if (waiting >= buckets.back()) return buckets.back();
  const auto above = std::lower_bound(buckets.begin(), buckets.end(), waiting);
  const double padding = static_cast<double>(*above - waiting) / *above;
  if (padding <= policy_.max_padding || above == buckets.begin()) return waiting;
  return *(above - 1);
}

absl::Duration BatchQueue::TimeOf(int side, int count, const BatchTime& batch_time) const {
  const int most = policy_.buckets.back();
  const absl::Duration full = count / most * batch_time(side, most);
  return count % most == 0 ? full : full + batch_time(side, count % most);
}

Outlook BatchQueue::Foresee(const ViewCounts& views, absl::Time now, absl::Time deadline, int slots,
                            const BatchTime& batch_time) const {
  // Each round takes one view of every image, and who is due first goes first in it.
  int rounds = 0;
  for (const auto& [side, count] : views) rounds = std::max(rounds, count);
  const absl::Time due = DueTime(deadline, now, policy_.patience);
  ViewCounts until_then = views;
  Outlook outlook;
  for (const auto& [side, line] : lines_) {
    if (line.items > policy_.buckets.back()) outlook.crowded = true;
    for (const auto& [place, waiting] : line.waiting) {
      if (place.first > due) break;
      until_then[side] += std::min(static_cast<int>(waiting.views.size()), rounds);
    }
  }
  absl::Duration last;  // the batch that its last view may ride in
  for (const auto& [side, count] : until_then) {
    outlook.time += TimeOf(side, count, batch_time);
    if (!views.contains(side)) continue;
    last = std::max(last, batch_time(side, std::min(count, policy_.buckets.back())));
  }
  outlook.time = std::max(last, last + (outlook.time - last) / slots);
  if (outlook.crowded) outlook.time += (kMargin - 1) * last;
  return outlook;
}

absl::Time BatchQueue::ReadyAt(const Line& line) const {
  if (line.items == 0) return absl::InfiniteFuture();
  if (line.items >= policy_.buckets.back() || policy_.max_delay <= absl::ZeroDuration()) {
    return absl::InfinitePast();
  }
  absl::Time oldest = absl::InfiniteFuture();
  for (const auto& [place, waiting] : line.waiting) oldest = std::min(oldest, waiting.queued);
  return oldest + policy_.max_delay;
}

absl::Time BatchQueue::ReadyAt() const {
  absl::Time ready = absl::InfiniteFuture();
  for (const auto& [side, line] : lines_) ready = std::min(ready, ReadyAt(line));
  return ready;
}

void BatchQueue::DropGone(absl::Time now, std::vector<DroppedTask>* dropped) {
  for (auto& [side, line] : lines_) {
    for (auto it = line.waiting.begin(); it != line.waiting.end();) {
      const Waiting& waiting = it->second;
      const Request& request = *waiting.task->request();
      const std::optional<DropReason> gone = request.Gone(now);
      if (!gone && !waiting.task->has_left()) {
        ++it;
        continue;
      }
      if (gone) dropped->push_back({waiting.task, *gone});
      Account(*waiting.task, -static_cast<int>(waiting.views.size()));
      line.items -= static_cast<int>(waiting.views.size());
      it = line.waiting.erase(it);
    }
  }
}

void BatchQueue::Fill(Line* line, int count, absl::Time now, std::vector<BatchItem>* items) {
  // Rounds of one view an image. Only images of the first round have given any.
  size_t givers = 0;
  while (static_cast<int>(items->size()) < count) {
    size_t in_round = 0;
    for (auto& [place, waiting] : line->waiting) {
      if (static_cast<int>(items->size()) == count) break;
      ++in_round;
      if (waiting.views.empty()) continue;
      items->push_back({waiting.task, waiting.views.back(), waiting.queued});
      waiting.views.pop_back();
      Account(*waiting.task, -1);
    }
    givers = std::max(givers, in_round);
  }
  line->items -= count;
  std::vector<Waiting> again;
  for (; givers > 0; --givers) {
    auto head = line->waiting.extract(line->waiting.begin());
    if (!head.mapped().views.empty()) again.push_back(std::move(head.mapped()));
  }
  for (Waiting& waiting : again) {
    const Place place = NewPlace(*waiting.task, now);
    line->waiting.emplace(place, std::move(waiting));
  }
}

int BatchQueue::FittingSize(int side, const Line& line, absl::Time now,
                            const BatchTime& batch_time) const {
  absl::Time latest = absl::InfinitePast();
  for (const auto& [place, waiting] : line.waiting) {
    latest = std::max(latest, waiting.task->request()->job.deadline);
  }
  int count = BatchSize(line.items);
  while (latest < now + batch_time(side, count)) {
    const auto bucket = std::lower_bound(policy_.buckets.begin(), policy_.buckets.end(), count);
    if (bucket == policy_.buckets.begin()) break;
    count = *(bucket - 1);
  }
  return count;
}

void BatchQueue::DropLate(Line* line, int count, absl::Time end,
                          std::vector<DroppedTask>* dropped) {
  for (auto it = line->waiting.begin(); it != line->waiting.end() && line->items > count;) {
    const int views = static_cast<int>(it->second.views.size());
    if (it->second.task->request()->job.deadline >= end || line->items - views < count) {
      ++it;
      continue;
    }
    dropped->push_back({it->second.task, DropReason::kDeadline});
    Account(*it->second.task, -views);
    line->items -= views;
    it = line->waiting.erase(it);
  }
}

Batch BatchQueue::Take(absl::Time now, const BatchTime& batch_time) {
  Batch batch;
  DropGone(now, &batch.dropped);
  Line* first = nullptr;
  for (auto& [side, line] : lines_) {
    if (ReadyAt(line) > now) continue;
    if (first == nullptr || line.waiting.begin()->first < first->waiting.begin()->first) {
      first = &line;
      batch.side = side;
    }
  }
  if (first == nullptr) return batch;
  const int count = FittingSize(batch.side, *first, now, batch_time);
  if (first->items > policy_.buckets.back()) {
    DropLate(first, count, now + kMargin * batch_time(batch.side, count), &batch.dropped);
  }
  Fill(first, count, now, &batch.items);
  return batch;
}

std::vector<std::shared_ptr<ImageTask>> BatchQueue::Clear() {
  std::vector<std::shared_ptr<ImageTask>> tasks;
  for (auto& [side, line] : lines_) {
    for (auto& [place, waiting] : line.waiting) tasks.push_back(std::move(waiting.task));
  }
  std::sort(tasks.begin(), tasks.end());
  tasks.erase(std::unique(tasks.begin(), tasks.end()), tasks.end());
  lines_.clear();
  items_ = bytes_ = 0;
  return tasks;
}

}  // namespace deepencoder
