// The batch queue under thousands of random schedules: images arrive, leave and pass their deadlines while
// slots that take random times ask for batches. A model that knows only the rules of batch_queue.h judges
// every batch.

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "server/engine/batch_queue.h"
#include "tests/server/engine/fakes.h"

namespace deepencoder {
namespace {

constexpr int kSchedules = 4000;

struct Schedule {
  BatchPolicy policy;
  int slots = 1;
};

// What the rules say of an image's views of one side.
struct Waiting {
  std::set<int> views;
  absl::Time due, queued;
};

struct Image {
  std::shared_ptr<ImageTask> task;
  std::shared_ptr<CancelFlag> cancel = std::make_shared<CancelFlag>();
  absl::Time arrival, deadline, leaves = absl::InfiniteFuture();
};

class Simulation {
 public:
  explicit Simulation(uint32_t seed) : random_(seed), schedule_(Draw()), queue_(schedule_.policy) {}

  // The first rule that was broken; "" if none.
  std::string Run() {
    std::vector<Image> images = DrawImages();
    views_ = 0;
    for (const Image& image : images) views_ += image.task->view_count();
    for (Image& image : images) {
      events_.emplace(image.arrival, [&] { Arrive(&image); });
      if (image.leaves != absl::InfiniteFuture()) {
        events_.emplace(image.leaves, [&] { image.cancel->Cancel(); });
      }
    }
    idle_ = schedule_.slots;
    while (!events_.empty() && broken_.empty()) {
      now_ = events_.begin()->first;
      while (!events_.empty() && events_.begin()->first == now_) {
        const auto happen = events_.begin()->second;
        events_.erase(events_.begin());
        happen();
      }
      FeedSlots();
    }
    if (broken_.empty() && (queue_.items() != 0 || queue_.bytes() != 0)) Break("work was left");
    if (broken_.empty() && encoded_ + given_up_ != views_) Break("views were lost");
    return broken_;
  }

  int encoded() const { return encoded_; }
  int given_up() const { return given_up_; }

 private:
  using Line = std::map<const Image*, Waiting>;

  int Uniform(int low, int high) { return std::uniform_int_distribution(low, high)(random_); }
  absl::Duration Millis(int low, int high) {
    return absl::Microseconds(Uniform(low * 1000, high * 1000));
  }

  Schedule Draw() {
    static const std::vector<int> kBuckets[] = {{1}, {4}, {1, 2, 4}, {1, 2, 4, 8}, {2, 6, 16}};
    Schedule schedule;
    schedule.policy.buckets = kBuckets[Uniform(0, 4)];
    if (Uniform(0, 2) == 0) schedule.policy.max_delay = Millis(0, 5);
    schedule.policy.patience = Millis(0, 150);
    schedule.policy.max_padding = Uniform(0, 4) / 4.0;
    schedule.slots = Uniform(1, 4);
    return schedule;
  }

  std::vector<Image> DrawImages() {
    std::vector<Image> images(Uniform(5, 40));
    const int spread = Uniform(1, 200);
    for (Image& image : images) {
      image.arrival = now_ + Millis(0, spread);
      image.deadline = Uniform(0, 2) == 0 ? absl::InfiniteFuture() : image.arrival + Millis(1, 300);
      if (Uniform(0, 7) == 0) image.leaves = image.arrival + Millis(0, 50);
      std::vector<int> sides(Uniform(0, 2) == 0 ? Uniform(2, 32) : 0, 640);
      sides.push_back(kViewSides[Uniform(0, 4)]);
      image.task = MakeTask(std::move(sides), image.deadline, image.cancel);
    }
    return images;
  }

  void Break(std::string rule) {
    if (broken_.empty()) broken_ = std::move(rule);
  }

  bool Gone(const Image& image) const {
    return image.cancel->cancelled() || now_ >= image.deadline;
  }

  void Arrive(Image* image) {
    by_task_[image->task.get()] = image;
    queue_.Add(image->task, now_);
    for (int view = 0; view < image->task->view_count(); ++view) {
      Waiting& waiting = lines_[image->task->side(view)][image];
      waiting.views.insert(view);
      waiting.due = std::min(image->deadline, now_ + schedule_.policy.patience);
      waiting.queued = now_;
    }
  }

  static int CountViews(const Line& line) {
    int count = 0;
    for (const auto& [image, waiting] : line) count += static_cast<int>(waiting.views.size());
    return count;
  }

  absl::Time ReadyAt(const Line& line) const {
    if (line.empty()) return absl::InfiniteFuture();
    const BatchPolicy& policy = schedule_.policy;
    if (CountViews(line) >= policy.buckets.back() || policy.max_delay == absl::ZeroDuration()) {
      return now_;
    }
    absl::Time oldest = absl::InfiniteFuture();
    for (const auto& [image, waiting] : line) oldest = std::min(oldest, waiting.queued);
    return oldest + policy.max_delay;
  }

  static absl::Time FirstDue(const Line& line) {
    absl::Time due = absl::InfiniteFuture();
    for (const auto& [image, waiting] : line) due = std::min(due, waiting.due);
    return due;
  }

  void FeedSlots() {
    while (idle_ > 0 && broken_.empty()) {
      const absl::Time ready = queue_.ReadyAt();
      if (ready > now_) {
        // As a slot's thread: look again when the delay is over.
        if (ready != absl::InfiniteFuture()) events_.emplace(ready, [] {});
        return;
      }
      const Batch batch = queue_.Take(now_);
      JudgeDropped(batch);
      JudgeBatch(batch);
      if (batch.items.empty()) continue;
      --idle_;
      events_.emplace(now_ + Millis(1, 40), [this] { ++idle_; });
    }
  }

  // Who is gone leaves all lines, and is named unless it was before.
  void JudgeDropped(const Batch& batch) {
    std::set<const Image*> named;
    for (const DroppedTask& drop : batch.dropped) named.insert(by_task_.at(drop.task.get()));
    std::set<const Image*> gone;
    for (auto& [side, line] : lines_) {
      for (auto it = line.begin(); it != line.end();) {
        if (!Gone(*it->first)) {
          ++it;
          continue;
        }
        gone.insert(it->first);
        given_up_ += static_cast<int>(it->second.views.size());
        it = line.erase(it);
      }
    }
    if (named != gone) Break("the dropped are not those that are gone");
  }

  void JudgeBatch(const Batch& batch) {
    absl::Time first_due = absl::InfiniteFuture();
    bool any_ready = false;
    for (const auto& [side, line] : lines_) {
      if (ReadyAt(line) > now_) continue;
      any_ready = true;
      first_due = std::min(first_due, FirstDue(line));
    }
    if (any_ready == batch.items.empty()) {
      return Break(any_ready ? "an idle slot got nothing" : "a batch before its time");
    }
    if (!any_ready) return;
    Line& line = lines_[batch.side];
    if (FirstDue(line) > first_due) Break("another side was due first");
    if (static_cast<int>(batch.items.size()) != queue_.BatchSize(CountViews(line))) {
      Break("a wrong batch size");
    }
    std::map<const Image*, int> given;
    for (const BatchItem& item : batch.items) {
      const Image* image = by_task_.at(item.task.get());
      const auto waiting = line.find(image);
      if (waiting == line.end()) return Break("a view that does not wait there");
      if (waiting->second.views.erase(item.view) == 0) return Break("a view came twice");
      if (item.queued != image->arrival) Break("a wrong waiting time");
      ++given[image];
      ++encoded_;
    }
    JudgeShares(line, given);
    for (const auto& [image, count] : given) {
      if (line.at(image).views.empty()) {
        line.erase(image);
      } else {
        line.at(image).due = std::min(image->deadline, now_ + schedule_.policy.patience);
      }
    }
    int waiting = 0;
    for (const auto& [side, any_line] : lines_) waiting += CountViews(any_line);
    if (queue_.items() != waiting) Break("a wrong number of waiting views");
  }

  // Rounds of one view an image, the first in the order of due times.
  void JudgeShares(const Line& line, const std::map<const Image*, int>& given) {
    int most = 0;
    absl::Time last_due = absl::InfinitePast();
    for (const auto& [image, count] : given) {
      most = std::max(most, count);
      last_due = std::max(last_due, line.at(image).due);
    }
    for (const auto& [image, waiting] : line) {
      if (waiting.views.empty()) continue;
      const auto found = given.find(image);
      const int count = found == given.end() ? 0 : found->second;
      if (count < most - 1) Break("an image got two views more than another that waits");
      if (count == 0 && waiting.due < last_due) Break("one that was due first was passed over");
    }
  }

  std::mt19937 random_;
  absl::Time now_ = absl::UnixEpoch();
  const Schedule schedule_;
  BatchQueue queue_;
  std::multimap<absl::Time, std::function<void()>> events_;
  std::map<const ImageTask*, const Image*> by_task_;
  std::map<int, Line> lines_;
  int idle_ = 0, views_ = 0, encoded_ = 0, given_up_ = 0;
  std::string broken_;
};

TEST(BatchScheduleTest, EveryBatchOfEveryScheduleKeepsTheRules) {
  int encoded = 0, given_up = 0;
  for (uint32_t seed = 0; seed < kSchedules; ++seed) {
    Simulation simulation(seed);
    ASSERT_EQ(simulation.Run(), "") << "seed " << seed;
    encoded += simulation.encoded();
    given_up += simulation.given_up();
  }
  // Both happened often, or nothing was tested.
  EXPECT_GT(encoded, 50 * kSchedules);
  EXPECT_GT(given_up, 10 * kSchedules);
}

}  // namespace
}  // namespace deepencoder
