// More is asked for than can be done in time: what would be late is not decoded.
#include <gtest/gtest.h>

#include <string>

#include "tests/server/engine/engine_fixture.h"

namespace deepencoder {
namespace {

constexpr int kLargest = 2;  // the only bucket
constexpr absl::Duration kStep = absl::Milliseconds(100);

class EngineOverloadTest : public EngineTest {
 protected:
  void Start(EngineOptions options) { EngineTest::Start(std::move(options), 1, 1, {kLargest}); }

  void SendUntil(int tag, absl::Duration time_left) {
    EncodeJob job = RawJob(tag);
    job.deadline = clock_.Now() + time_left;
    Send(tag, std::move(job));
  }

  // The engine sees image 0 take kStep behind `gate`.
  void Learn(Gate* gate, void (FakeDevice::*await)(int)) {
    gate->Close();
    Send(0);
    (device().*await)(1);
    clock_.Advance(kStep);
    gate->Open();
    answers_.Await(1);
  }
  void LearnBatchTime() { Learn(&device().encode_gate, &FakeDevice::AwaitEncodes); }
  void LearnDecodeTime() { Learn(&device().views_gate, &FakeDevice::AwaitViews); }

  // Image 1 is in the slot until its gate opens, and the next `count` wait for it.
  void Occupy(int count) {
    device().encode_gate.Close();
    Send(1);
    device().AwaitEncodes(2);
    for (int tag = 2; tag < 2 + count; ++tag) Send(tag);
    // The decode thread queues one before it looks at the next.
    device().AwaitViews(2 + count);
  }
};

TEST_F(EngineOverloadTest, WhatWouldBeEncodedLateIsNotDecoded) {
  Start(Options());
  LearnBatchTime();
  Occupy(kLargest + 1);
  // Two batches and, for others wait in its place, the time of one more.
  SendUntil(5, 2.5 * kStep);
  answers_.Await(2);
  EXPECT_EQ(CodeOf(5), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(observer_.drops_before[static_cast<int>(Stage::kDecode)], 1);
  EXPECT_FALSE(device().WasViewed(5));

  SendUntil(6, 3.5 * kStep);
  Send(7);
  device().AwaitViews(7);
  device().encode_gate.Open();
  answers_.Await(8);
  EXPECT_TRUE(answers_.Get(6).ok());
  EXPECT_TRUE(answers_.Get(7).ok());
  EXPECT_EQ(observer_.AllDrops(), 1);
}

TEST_F(EngineOverloadTest, WhileABatchHasRoomWhatMayBeLateIsTried) {
  Start(Options());
  LearnBatchTime();
  Occupy(kLargest - 1);
  SendUntil(3, 0.5 * kStep);
  device().AwaitViews(4);
  device().encode_gate.Open();
  answers_.Await(4);
  EXPECT_TRUE(answers_.Get(3).ok());
}

TEST_F(EngineOverloadTest, WhatIsCachedIsAnsweredHoweverManyWait) {
  EngineOptions options = Options();
  options.cache_bytes = size_t{1} << 20;
  Start(options);
  LearnBatchTime();
  Occupy(kLargest + 1);
  EncodeJob again = RawJob(0);
  again.deadline = clock_.Now() + kStep;
  Send(5, std::move(again));
  answers_.Await(2);
  ASSERT_TRUE(answers_.Get(5).ok()) << answers_.Get(5).status().ToString();
  EXPECT_TRUE(answers_.Get(5)->cache_hit);
  device().encode_gate.Open();
}

TEST_F(EngineOverloadTest, WhatWouldBeDecodedLateGivesWayToWhatWaits) {
  Start(Options());
  LearnDecodeTime();
  device().views_gate.Close();
  Send(1);
  device().AwaitViews(2);  // the only decode thread is in there
  SendUntil(2, 0.5 * kStep);
  SendUntil(3, 1.5 * kStep);
  device().views_gate.Open();
  answers_.Await(4);
  EXPECT_EQ(CodeOf(2), absl::StatusCode::kDeadlineExceeded);
  EXPECT_FALSE(device().WasViewed(2));
  EXPECT_TRUE(answers_.Get(3).ok());
}

TEST_F(EngineOverloadTest, WhileNothingElseWaitsWhatMayBeLateIsDecoded) {
  Start(Options());
  LearnDecodeTime();
  SendUntil(1, 0.5 * kStep);
  answers_.Await(2);
  EXPECT_TRUE(answers_.Get(1).ok());
}

}  // namespace
}  // namespace deepencoder
