// What the batch queue foresees for an image that has not come yet.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "server/engine/batch_queue.h"
#include "tests/server/engine/fakes.h"

namespace deepencoder {
namespace {

const absl::Time kStart = absl::UnixEpoch() + absl::Hours(1);
constexpr absl::Duration kMs = absl::Milliseconds(1);
constexpr int kLargest = 4;

BatchPolicy Policy() {
  BatchPolicy policy;
  policy.buckets = {1, 2, kLargest};
  return policy;
}

// A view takes 10 ms, one of side 1024 takes 20, whatever the batch.
absl::Duration TimeOf(int side, int count) { return (side == 1024 ? 20 : 10) * count * kMs; }

class BatchOutlookTest : public ::testing::Test {
 protected:
  void AddImages(int count, const std::vector<int>& sides, absl::Time now = kStart) {
    for (int i = 0; i < count; ++i) queue_.Add(MakeTask(sides), now);
  }

  Outlook Foresee(const ViewCounts& views, absl::Time deadline = absl::InfiniteFuture(),
                  int slots = 1) const {
    return queue_.Foresee(views, kStart, deadline, slots, TimeOf);
  }

  BatchQueue queue_{Policy()};
};

TEST_F(BatchOutlookTest, AloneAnImageTakesItsOwnBatches) {
  EXPECT_EQ(Foresee({{512, 1}}).time, 10 * kMs);
  EXPECT_EQ(Foresee({{640, 6}, {1024, 1}}).time, 80 * kMs);
  EXPECT_FALSE(Foresee({{512, 1}}).crowded);
}

TEST_F(BatchOutlookTest, BatchesOfOthersGoFirst) {
  AddImages(3, {512});
  EXPECT_EQ(Foresee({{512, 1}}).time, 40 * kMs);
  AddImages(1, {1024});
  EXPECT_EQ(Foresee({{512, 1}}).time, 60 * kMs);
  EXPECT_FALSE(Foresee({{512, 1}}).crowded);
}

TEST_F(BatchOutlookTest, InACrowdABatchTimeMustBeLeft) {
  AddImages(7, {512});
  EXPECT_TRUE(Foresee({{512, 1}}).crowded);
  EXPECT_EQ(Foresee({{512, 1}}).time, (80 + 40) * kMs);
}

TEST_F(BatchOutlookTest, SlotsShareWhatComesBefore) {
  AddImages(11, {512});
  EXPECT_EQ(Foresee({{512, 1}}, absl::InfiniteFuture(), 2).time, (40 + 80 / 2 + 40) * kMs);
}

TEST_F(BatchOutlookTest, AHugeImageDelaysASmallOneByOneViewOfItsSide) {
  AddImages(1, std::vector<int>(30, 640));
  EXPECT_EQ(Foresee({{640, 1}}).time, (20 + 20) * kMs);
  // Another huge one takes turns with it.
  EXPECT_EQ(Foresee({{640, 30}}).time, (600 + 40) * kMs);
}

TEST_F(BatchOutlookTest, WhoIsUrgentOvertakesThoseThatAreDueLater) {
  AddImages(3, {512});
  EXPECT_EQ(Foresee({{512, 1}}, kStart + 50 * kMs).time, 10 * kMs);
  EXPECT_EQ(Foresee({{512, 1}}, kStart + 200 * kMs).time, 40 * kMs);
}

TEST_F(BatchOutlookTest, NobodyWaitsForWhatWasNeverMeasured) {
  AddImages(100, {512});
  const auto in_no_time = [](int, int) { return absl::ZeroDuration(); };
  EXPECT_EQ(queue_.Foresee({{512, 1}}, kStart, kStart, 1, in_no_time).time, absl::ZeroDuration());
}

// What it foresees comes true: images that wait for one another, with nothing behind them.
TEST_F(BatchOutlookTest, AnImageIsEncodedWhenForeseen) {
  std::mt19937 random(1);
  for (int schedule = 0; schedule < 2000; ++schedule) {
    BatchQueue queue(Policy());
    std::map<std::shared_ptr<ImageTask>, int> left;
    const auto add = [&](ViewCounts* views) {
      std::vector<int> sides(random() % 3 == 0 ? random() % 9 : 0, 640);
      sides.push_back(random() % 2 == 0 ? 640 : 1024);
      for (const int side : sides) ++(*views)[side];
      const auto task = MakeTask(sides);
      left[task] = static_cast<int>(sides.size());
      return task;
    };
    for (int i = static_cast<int>(random() % 20); i > 0; --i) {
      ViewCounts views;
      queue.Add(add(&views), kStart);
    }
    ViewCounts views;
    const auto last = add(&views);
    const Outlook outlook = queue.Foresee(views, kStart, absl::InfiniteFuture(), 1, TimeOf);
    queue.Add(last, kStart);
    absl::Time now = kStart;
    while (left.at(last) > 0) {
      const Batch batch = queue.Take(now, TimeOf);
      ASSERT_FALSE(batch.items.empty());
      for (const BatchItem& item : batch.items) --left.at(item.task);
      now += TimeOf(batch.side, static_cast<int>(batch.items.size()));
    }
    // Late by a batch of each side at most: views of others may fill a batch up. Early by as much, if it is first
    // in its last round, and by what must be left in a crowd.
    const absl::Duration error = now - kStart - outlook.time;
    const absl::Duration most = TimeOf(640, kLargest) + TimeOf(1024, kLargest);
    ASSERT_LE(error, most) << "schedule " << schedule;
    ASSERT_GE(error, -2 * most) << "schedule " << schedule;
  }
}

// Five times as much is asked for as can be done, each within a second. Who was let in by the outlook is nearly
// always encoded, in time, and the slot is never idle.
TEST_F(BatchOutlookTest, WhoIsLetInIsNotDroppedLater) {
  constexpr int kSeconds = 60;
  std::mt19937 random(2);
  std::exponential_distribution<double> gap(500.0);  // the slot does 100 a second
  absl::Time now = kStart, arrival = kStart;
  int let_in = 0, refused = 0, dropped = 0, in_time = 0;
  while (now < kStart + absl::Seconds(kSeconds)) {
    for (; arrival <= now; arrival += absl::Seconds(gap(random))) {
      const absl::Time deadline = arrival + absl::Seconds(1);
      const Outlook outlook = queue_.Foresee({{512, 1}}, arrival, deadline, 1, TimeOf);
      if (outlook.crowded && arrival + outlook.time > deadline) {
        ++refused;
        continue;
      }
      ++let_in;
      queue_.Add(MakeTask({512}, deadline), arrival);
    }
    const Batch batch = queue_.Take(now, TimeOf);
    dropped += static_cast<int>(batch.dropped.size());
    if (batch.items.empty()) {  // before the first arrivals only
      ASSERT_EQ(let_in, 0);
      now = arrival;
      continue;
    }
    now += TimeOf(512, static_cast<int>(batch.items.size()));
    for (const BatchItem& item : batch.items) {
      in_time += item.task->request()->job.deadline >= now;
    }
  }
  EXPECT_GE(in_time, kSeconds * 100 * 98 / 100);
  EXPECT_GT(refused, 3 * let_in);
  EXPECT_LE(dropped, let_in / 20);
}

}  // namespace
}  // namespace deepencoder
