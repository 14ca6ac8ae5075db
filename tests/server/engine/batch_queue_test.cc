#include "server/engine/batch_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <vector>

#include "tests/server/engine/fakes.h"

namespace deepencoder {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

const absl::Time kStart = absl::UnixEpoch() + absl::Hours(1);
constexpr absl::Duration kMs = absl::Milliseconds(1);

BatchPolicy Policy(std::vector<int> buckets = {1, 2, 4, 8}) {
  BatchPolicy policy;
  policy.buckets = std::move(buckets);
  return policy;
}

std::vector<std::shared_ptr<ImageTask>> TasksOf(const Batch& batch) {
  std::vector<std::shared_ptr<ImageTask>> tasks;
  for (const BatchItem& item : batch.items) tasks.push_back(item.task);
  return tasks;
}

std::map<std::shared_ptr<ImageTask>, int> CountByTask(const Batch& batch) {
  std::map<std::shared_ptr<ImageTask>, int> counts;
  for (const BatchItem& item : batch.items) ++counts[item.task];
  return counts;
}

TEST(BatchQueueTest, AnIdleSlotTakesWhatIsThereAtOnce) {
  BatchQueue queue(Policy());
  EXPECT_EQ(queue.ReadyAt(), absl::InfiniteFuture());
  const auto task = MakeTask({1024});
  queue.Add(task, kStart);
  EXPECT_LE(queue.ReadyAt(), kStart);
  const Batch batch = queue.Take(kStart);
  EXPECT_EQ(batch.side, 1024);
  EXPECT_THAT(TasksOf(batch), ElementsAre(task));
  EXPECT_EQ(queue.items(), 0);
  EXPECT_EQ(queue.bytes(), 0);
  EXPECT_THAT(queue.Take(kStart).items, IsEmpty());
}

TEST(BatchQueueTest, ABatchHoldsOneSide) {
  BatchQueue queue(Policy());
  queue.Add(MakeTask({640, 640, 1024}), kStart);
  queue.Add(MakeTask({1024}), kStart);
  const Batch first = queue.Take(kStart);
  const Batch second = queue.Take(kStart);
  EXPECT_EQ(first.side, 640);
  EXPECT_THAT(first.items, SizeIs(2));
  EXPECT_EQ(second.side, 1024);
  EXPECT_THAT(second.items, SizeIs(2));
}

TEST(BatchQueueTest, TheSideWhoseHeadWaitsLongestGoesFirst) {
  BatchQueue queue(Policy());
  queue.Add(MakeTask({1280}), kStart);
  queue.Add(MakeTask({512}), kStart + kMs);
  EXPECT_EQ(queue.Take(kStart + 2 * kMs).side, 1280);
  EXPECT_EQ(queue.Take(kStart + 2 * kMs).side, 512);
}

TEST(BatchQueueTest, BatchSizesAvoidPadding) {
  BatchPolicy policy = Policy({1, 2, 4, 8, 16, 32});
  const BatchQueue quarter(policy);
  EXPECT_EQ(quarter.BatchSize(1), 1);
  EXPECT_EQ(quarter.BatchSize(3), 3);  // one of four is padding
  EXPECT_EQ(quarter.BatchSize(5), 4);  // three of eight would be
  EXPECT_EQ(quarter.BatchSize(17), 16);
  EXPECT_EQ(quarter.BatchSize(24), 24);
  EXPECT_EQ(quarter.BatchSize(100), 32);
  policy.max_padding = 1;
  EXPECT_EQ(BatchQueue(policy).BatchSize(17), 17);
  policy.max_padding = 0;
  EXPECT_EQ(BatchQueue(policy).BatchSize(31), 16);
  EXPECT_EQ(BatchQueue(Policy({4})).BatchSize(1), 1);  // no smaller bucket
}

TEST(BatchQueueTest, TilesOfOneImageMayRideInDifferentBatches) {
  BatchQueue queue(Policy({1, 2, 4}));
  queue.Add(MakeTask(std::vector<int>(6, 640)), kStart);
  EXPECT_THAT(queue.Take(kStart).items, SizeIs(4));
  EXPECT_THAT(queue.Take(kStart).items, SizeIs(2));
}

TEST(BatchQueueTest, AHugeImageDoesNotBlockSmallOnes) {
  BatchQueue queue(Policy({1, 2, 4}));
  const auto huge = MakeTask(std::vector<int>(32, 640));
  queue.Add(huge, kStart);
  std::vector<std::shared_ptr<ImageTask>> small;
  for (int i = 0; i < 3; ++i) {
    small.push_back(MakeTask({640}));
    queue.Add(small.back(), kStart + kMs);
  }
  EXPECT_THAT(TasksOf(queue.Take(kStart + 2 * kMs)),
              ElementsAre(huge, small[0], small[1], small[2]));
}

// However many huge images wait, a small one gets its place within one turn of all.
TEST(BatchQueueTest, EveryImageGetsAPlaceInATurn) {
  constexpr int kHuge = 50, kLargest = 8;
  BatchQueue queue(Policy());
  for (int i = 0; i < kHuge; ++i) queue.Add(MakeTask(std::vector<int>(33, 640)), kStart);
  absl::Time now = kStart + kMs;
  const auto small = MakeTask({640});
  queue.Add(small, now);
  int batches = 0;
  for (bool served = false; !served; now += kMs) {
    const Batch batch = queue.Take(now);
    served = CountByTask(batch).contains(small);
    ASSERT_LE(++batches, (kHuge + 1 + kLargest - 1) / kLargest);
  }
}

TEST(BatchQueueTest, NearDeadlinesOvertake) {
  BatchQueue queue(Policy({1}));
  const auto patient = MakeTask({512});
  const auto urgent = MakeTask({512}, kStart + 20 * kMs);
  queue.Add(patient, kStart);
  queue.Add(urgent, kStart + kMs);
  EXPECT_THAT(TasksOf(queue.Take(kStart + 2 * kMs)), ElementsAre(urgent));
}

TEST(BatchQueueTest, NobodyIsOvertakenForLongerThanThePatience) {
  BatchQueue queue(Policy({1}));
  const auto patient = MakeTask({512});
  queue.Add(patient, kStart);
  // A stream of urgent ones, always one waiting more than is served.
  absl::Time now = kStart;
  bool served = false;
  while (!served && now < kStart + absl::Seconds(1)) {
    queue.Add(MakeTask({512}, now + 20 * kMs), now);
    queue.Add(MakeTask({512}, now + 20 * kMs), now);
    served = TasksOf(queue.Take(now)).front() == patient;
    now += kMs;
  }
  EXPECT_TRUE(served);
  EXPECT_LE(now, kStart + Policy().patience + kMs);
}

TEST(BatchQueueTest, NobodyWaitsForWhoIsGone) {
  BatchQueue queue(Policy());
  const auto cancel = std::make_shared<CancelFlag>();
  const auto cancelled = MakeTask({512, 640}, absl::InfiniteFuture(), cancel);
  const auto late = MakeTask({512}, kStart + kMs);
  const auto failed = MakeTask({512});
  const auto wanted = MakeTask({512});
  for (const auto& task : {cancelled, late, failed, wanted}) queue.Add(task, kStart);
  cancel->Cancel();
  EXPECT_TRUE(failed->Leave());
  const Batch batch = queue.Take(kStart + kMs);
  EXPECT_THAT(TasksOf(batch), ElementsAre(wanted));
  std::map<std::shared_ptr<ImageTask>, DropReason> dropped;
  for (const DroppedTask& drop : batch.dropped) dropped[drop.task] = drop.reason;
  EXPECT_EQ(dropped.size(), 2u);
  EXPECT_EQ(dropped.at(cancelled), DropReason::kCancelled);
  EXPECT_EQ(dropped.at(late), DropReason::kDeadline);
  EXPECT_EQ(queue.items(), 0);  // of both sides
  EXPECT_EQ(queue.bytes(), 0);
}

TEST(BatchQueueTest, ADelayWaitsForCompanyButNotForLonger) {
  BatchPolicy policy = Policy({1, 2, 4});
  policy.max_delay = 5 * kMs;
  BatchQueue queue(policy);
  queue.Add(MakeTask({512}), kStart);
  queue.Add(MakeTask({512}), kStart + 2 * kMs);
  EXPECT_EQ(queue.ReadyAt(), kStart + 5 * kMs);
  EXPECT_THAT(queue.Take(kStart + 4 * kMs).items, IsEmpty());
  EXPECT_THAT(queue.Take(kStart + 5 * kMs).items, SizeIs(2));
}

TEST(BatchQueueTest, AFullBatchDoesNotWaitForTheDelay) {
  BatchPolicy policy = Policy({1, 2});
  policy.max_delay = absl::Seconds(5);
  BatchQueue queue(policy);
  queue.Add(MakeTask({512}), kStart);
  queue.Add(MakeTask({640}), kStart);
  EXPECT_GT(queue.ReadyAt(), kStart);
  queue.Add(MakeTask({640}), kStart);
  EXPECT_LE(queue.ReadyAt(), kStart);
  const Batch batch = queue.Take(kStart);
  EXPECT_EQ(batch.side, 640);
  EXPECT_THAT(batch.items, SizeIs(2));
}

TEST(BatchQueueTest, ClearGivesEachTaskOnce) {
  BatchQueue queue(Policy());
  const auto task = MakeTask({640, 640, 1024});
  queue.Add(task, kStart);
  EXPECT_THAT(queue.Clear(), ElementsAre(task));
  EXPECT_EQ(queue.items(), 0);
  EXPECT_EQ(queue.bytes(), 0);
  EXPECT_THAT(queue.Take(kStart).items, IsEmpty());
}

absl::Duration TenMs(int /*side*/, int /*count*/) { return 10 * kMs; }

TEST(BatchQueueTest, WhatWouldBeLateGivesWayToWhatWouldNot) {
  BatchQueue queue(Policy({1, 2}));
  const auto late = MakeTask({512}, kStart + 19 * kMs),
             also_late = MakeTask({512}, kStart + 8 * kMs);
  const auto in_time = MakeTask({512}, kStart + 20 * kMs), unbounded = MakeTask({512});
  for (const auto& task : {late, also_late, in_time, unbounded}) queue.Add(task, kStart);
  const Batch batch = queue.Take(kStart, TenMs);
  EXPECT_THAT(TasksOf(batch), ElementsAre(in_time, unbounded));
  ASSERT_THAT(batch.dropped, SizeIs(2));
  EXPECT_EQ(batch.dropped[0].task, also_late);
  EXPECT_EQ(batch.dropped[1].task, late);
  EXPECT_EQ(batch.dropped[0].reason, DropReason::kDeadline);
  EXPECT_EQ(queue.items(), 0);
  EXPECT_EQ(queue.bytes(), 0);
}

// The time that a batch takes is a guess, and an idle slot has nothing better to do.
TEST(BatchQueueTest, WithRoomForAllThoseThatMayBeLateAreTried) {
  BatchQueue queue(Policy({1, 2}));
  const auto late = MakeTask({512}, kStart + 9 * kMs), unbounded = MakeTask({512});
  for (const auto& task : {late, unbounded}) queue.Add(task, kStart);
  const Batch batch = queue.Take(kStart, TenMs);
  EXPECT_THAT(TasksOf(batch), ElementsAre(late, unbounded));
  EXPECT_THAT(batch.dropped, IsEmpty());
}

TEST(BatchQueueTest, NoMoreAreDroppedThanOthersMakeUpFor) {
  BatchQueue queue(Policy({1, 2, 4}));
  std::vector<std::shared_ptr<ImageTask>> late;
  for (int i = 0; i < 5; ++i) {
    late.push_back(MakeTask({512}, kStart + (5 + i) * kMs));
    queue.Add(late.back(), kStart);
  }
  queue.Add(MakeTask({512}), kStart);
  const Batch batch = queue.Take(kStart, TenMs);
  EXPECT_THAT(batch.items, SizeIs(4));
  EXPECT_THAT(batch.dropped, SizeIs(2));
  EXPECT_EQ(queue.items(), 0);
}

TEST(BatchQueueTest, ABatchInWhichNobodyWouldBeInTimeIsMadeSmaller) {
  BatchQueue queue(Policy({1, 2, 4}));
  for (int i = 0; i < 4; ++i) queue.Add(MakeTask({512}, kStart + 25 * kMs), kStart);
  const auto ten_ms_each = [](int /*side*/, int count) { return count * 10 * kMs; };
  EXPECT_THAT(queue.Take(kStart, ten_ms_each).items, SizeIs(2));
  EXPECT_THAT(queue.Take(kStart + 20 * kMs, ten_ms_each).items, SizeIs(1));
  EXPECT_EQ(queue.items(), 1);
}

}  // namespace
}  // namespace deepencoder
