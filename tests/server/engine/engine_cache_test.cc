// The result cache in the engine, and new weights.
#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "tests/server/engine/engine_fixture.h"

namespace deepencoder {
namespace {

class EngineCacheTest : public EngineTest {
 protected:
  void StartWithCache() {
    EngineOptions options = Options();
    options.cache_bytes = size_t{64} << 20;
    // A test sends until something happens, which takes as long as the machine is busy.
    options.limits = {.images = 1 << 20, .bytes = int64_t{1} << 40, .views = 1 << 24};
    Start(options);
  }

  // Sends three equal jobs (1, 2 and 3); returns when the first is in the slot, held by the gate, and the
  // others follow it.
  void LeadAndFollow(EncodeJob leader) {
    device().encode_gate.Close();
    Send(1, std::move(leader));
    device().AwaitEncodes(1);
    Send(2, RawJob(1));
    Send(3, RawJob(1));
    Send(99, RawJob(99));
    device().AwaitViews(2);  // of 1 and 99: 2 and 3 came before
  }
};

TEST_F(EngineCacheTest, AnEqualJobIsAnsweredWithoutTheDevice) {
  StartWithCache();
  Send(1, RawJob(1));
  answers_.Await(1);
  Send(2, RawJob(1));
  answers_.Await(2);
  const auto first = answers_.Get(1), second = answers_.Get(2);
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_FALSE(first->cache_hit);
  EXPECT_TRUE(second->cache_hit);
  EXPECT_EQ(first->data, second->data);
  EXPECT_EQ(second->rows, first->rows);
  EXPECT_EQ(second->seconds.compute, 0);
  EXPECT_EQ(device().encodes(), 1);
  EXPECT_EQ(observer_.hits, 1);
  EXPECT_EQ(observer_.misses, 1);
  EXPECT_EQ(observer_.in_flight_images, 0);
}

TEST_F(EngineCacheTest, OffNothingIsShared) {
  Start(Options());
  Send(1, RawJob(1));
  answers_.Await(1);
  Send(2, RawJob(1));
  answers_.Await(2);
  EXPECT_FALSE(answers_.Get(2)->cache_hit);
  EXPECT_EQ(device().encodes(), 2);
  EXPECT_EQ(observer_.hits + observer_.misses, 0);
}

TEST_F(EngineCacheTest, EqualJobsInFlightAreEncodedOnce) {
  StartWithCache();
  LeadAndFollow(RawJob(1));
  device().encode_gate.Open();
  answers_.Await(4);
  for (int number : {1, 2, 3}) {
    const auto result = answers_.Get(number);
    ASSERT_TRUE(result.ok());
    EXPECT_EQ(CheckRows(*result, 0, 1), "");
    EXPECT_EQ(result->cache_hit, number != 1);
    EXPECT_EQ(answers_.times(number), 1);
  }
  EXPECT_EQ(device().encodes(), 2);  // the other is of job 99
}

TEST_F(EngineCacheTest, FollowersDoNotFailWithTheirLeadersDevice) {
  StartWithCache();
  device().encode_faults = 1;
  LeadAndFollow(RawJob(1));
  device().encode_gate.Open();
  answers_.Await(4);
  EXPECT_EQ(CodeOf(1), absl::StatusCode::kInternal);
  EXPECT_EQ(CheckRows(*answers_.Get(2), 0, 1), "");
  EXPECT_EQ(CheckRows(*answers_.Get(3), 0, 1), "");
  EXPECT_FALSE(answers_.Get(2)->cache_hit);
  EXPECT_TRUE(answers_.Get(3)->cache_hit);
}

TEST_F(EngineCacheTest, FollowersDoNotLeaveWithTheirLeader) {
  StartWithCache();
  device().encode_gate.Close();
  Send(50);  // holds the slot, so that the leader waits in the queue
  device().AwaitEncodes(1);
  EncodeJob leader = RawJob(1);
  leader.cancel = std::make_shared<CancelFlag>();
  EncodeJob late = RawJob(1);
  late.deadline = clock_.Now() + absl::Seconds(1);
  Send(1, leader);
  Send(2, late);
  Send(3, RawJob(1));
  Send(99);
  device().AwaitViews(3);
  leader.cancel->Cancel();
  clock_.Advance(absl::Seconds(1));
  device().encode_gate.Open();
  answers_.Await(5);
  EXPECT_EQ(CodeOf(1), absl::StatusCode::kCancelled);
  EXPECT_EQ(CodeOf(2), absl::StatusCode::kDeadlineExceeded);
  ASSERT_TRUE(answers_.Get(3).ok());
  EXPECT_EQ(CheckRows(*answers_.Get(3), 0, 1), "");
  EXPECT_EQ(observer_.AllDrops(), 2);
}

TEST_F(EngineCacheTest, TheEndOfTheEngineAnswersFollowersToo) {
  StartWithCache();
  device().encode_faults = 1;
  LeadAndFollow(RawJob(1));
  std::thread end([&] { engine_.reset(); });
  device().encode_gate.Open();
  end.join();
  EXPECT_EQ(answers_.count(), 4);
  for (int number : {1, 2, 3, 99}) EXPECT_EQ(answers_.times(number), 1);
}

// ---------------------------------------------------------------- new weights

std::vector<DeviceSlots> OneDevice(const std::shared_ptr<FakeDevice>& device) {
  std::vector<DeviceSlots> devices;
  devices.push_back(MakeFakeSlots(device, 1));
  return devices;
}

TEST_F(EngineCacheTest, NewWeightsServeWhileTheOldOnesFinish) {
  StartWithCache();
  device().encode_gate.Close();
  Send(1);
  Send(2);
  device().AwaitEncodes(1);
  device().AwaitViews(2);
  const auto fresh = std::make_shared<FakeDevice>();
  fresh->salt = 1;
  std::thread swap(
      [&] { EXPECT_TRUE(engine_->SwapBackends(OneDevice(fresh), FakeSpecialRows()).ok()); });
  // Until the swap has happened jobs go to the old weights, behind its gate; ask with new ones until one
  // is answered by the new weights.
  int tag = 100;
  while (fresh->encodes() == 0) {
    Send(++tag);
    std::this_thread::yield();
  }
  EXPECT_FALSE(device().backend_destroyed);
  EXPECT_EQ(answers_.times(1), 0);
  device().encode_gate.Open();
  swap.join();
  EXPECT_TRUE(device().backend_destroyed);
  EXPECT_FALSE(fresh->backend_destroyed);
  answers_.Await(2 + tag - 100);
  EXPECT_EQ(CheckRows(*answers_.Get(1), 0, 1), "");
  EXPECT_EQ(CheckRows(*answers_.Get(2), 0, 2), "");
  EXPECT_EQ(CheckRows(*answers_.Get(tag), 1, tag), "");
}

TEST_F(EngineCacheTest, NewWeightsDoNotAnswerFromOldResults) {
  StartWithCache();
  Send(1, RawJob(1));
  answers_.Await(1);
  const auto fresh = std::make_shared<FakeDevice>();
  fresh->salt = 1;
  ASSERT_TRUE(engine_->SwapBackends(OneDevice(fresh), FakeSpecialRows()).ok());
  Send(2, RawJob(1));
  answers_.Await(2);
  EXPECT_FALSE(answers_.Get(2)->cache_hit);
  EXPECT_EQ(CheckRows(*answers_.Get(2), 1, 1), "");
}

TEST_F(EngineCacheTest, ARefusedSwapChangesNothing) {
  StartWithCache();
  EXPECT_EQ(engine_->SwapBackends({}, FakeSpecialRows()).code(),
            absl::StatusCode::kInvalidArgument);
  Send(1);
  answers_.Await(1);
  EXPECT_TRUE(answers_.Get(1).ok());
}

TEST_F(EngineCacheTest, ASwapHealsALostDevice) {
  StartWithCache();
  device().encode_faults = 1;
  device().create_fails = true;
  Send(1);
  answers_.Await(1);
  while (engine_->healthy()) std::this_thread::yield();
  ASSERT_TRUE(
      engine_->SwapBackends(OneDevice(std::make_shared<FakeDevice>()), FakeSpecialRows()).ok());
  EXPECT_TRUE(engine_->healthy());
  Send(2);
  answers_.Await(2);
  EXPECT_TRUE(answers_.Get(2).ok());
}

}  // namespace
}  // namespace deepencoder
