// Slots of two threads: one brings the rows of a batch to where they go while the other encodes the next.
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>

#include "tests/server/engine/engine_fixture.h"

namespace deepencoder {
namespace {

class EngineOverlapTest : public EngineTest {
 protected:
  EngineOverlapTest() { overlaps_ = true; }

  // The second image is answered while the first's rows are held: until rows_hold opens, a third call must wait.
  void SendTwoAndHoldTheFirst() {
    device().rows_held_tag = 1;
    device().rows_hold.Close();
    Send(1);
    device().AwaitComputed(1);
    Send(2);
    answers_.Await(1);
    EXPECT_EQ(Rows(2), "");
  }

  std::string Rows(int number) const {
    const absl::StatusOr<EncodeResult> result = answers_.Get(number);
    return result.ok() ? CheckRows(*result, 0, number) : result.status().ToString();
  }
};

TEST_F(EngineOverlapTest, TheNextBatchRunsWhileRowsAreWritten) {
  Start(Options());
  device().rows_gate.Close();
  Send(1);
  device().AwaitEncodes(1);
  Send(2);
  device().AwaitEncodes(2);  // though the first has not returned
  EXPECT_EQ(answers_.count(), 0);
  Send(3);
  Send(4);
  device().rows_gate.Open();
  answers_.Await(4);
  for (int i = 1; i <= 4; ++i) EXPECT_EQ(Rows(i), "") << i;
  EXPECT_EQ(device().most_calls, 2);
}

TEST_F(EngineOverlapTest, NoBatchIsMadeBeforeTheDeviceIsDone) {
  Start(Options());
  device().encode_gate.Close();
  Send(1);
  device().AwaitEncodes(1);
  // All of these come while the device works, and so share the next batch.
  for (int i = 2; i <= 9; ++i) Send(i);
  device().AwaitViews(9);
  while (observer_.queue_items < 8) std::this_thread::yield();
  device().encode_gate.Open();
  answers_.Await(9);
  EXPECT_EQ(device().encodes(), 2);
  for (int i = 1; i <= 9; ++i) EXPECT_EQ(Rows(i), "") << i;
}

// A slot has two places for rows, used in turn: that of the first call is not free when the second returns.
TEST_F(EngineOverlapTest, AThirdCallWaitsForTheFirst) {
  Start(Options());
  SendTwoAndHoldTheFirst();
  Send(3);
  device().AwaitViews(3);
  for (int i = 0; i < 1000; ++i) std::this_thread::yield();
  device().rows_hold.Open();
  answers_.Await(3);
  EXPECT_EQ(Rows(1), "");
  EXPECT_EQ(Rows(3), "");
  EXPECT_FALSE(device().third_call);
}

TEST_F(EngineOverlapTest, AFaultWaitsForTheOtherCallBeforeTheSlotGoes) {
  Start(Options());
  device().rows_gate.Close();
  Send(1);
  device().AwaitComputed(1);
  device().encode_faults = 1;
  Send(2);
  answers_.Await(1);
  EXPECT_EQ(CodeOf(2), absl::StatusCode::kInternal);
  EXPECT_EQ(device().slots_destroyed, 0);  // the first call is still in it
  device().rows_gate.Open();
  answers_.Await(2);
  EXPECT_EQ(Rows(1), "");
  Send(3);
  answers_.Await(3);
  EXPECT_EQ(Rows(3), "");
  EXPECT_EQ(device().slots_made, 2);
  EXPECT_FALSE(device().destroyed_in_call);
}

TEST_F(EngineOverlapTest, RowsThatDoNotComeAreAFaultToo) {
  Start(Options());
  device().rows_faults = 1;
  Send(1);
  answers_.Await(1);
  EXPECT_EQ(CodeOf(1), absl::StatusCode::kInternal);
  // At once, though the slot's other thread waits for work and has the turn.
  while (device().slots_made < 2) std::this_thread::yield();
  Send(2);
  answers_.Await(2);
  EXPECT_EQ(Rows(2), "");
  EXPECT_EQ(device().slots_made, 2);
  EXPECT_TRUE(engine_->healthy());
}

TEST_F(EngineOverlapTest, AFaultThatBothCallsMeetIsMendedOnce) {
  Start(Options());
  device().rows_gate.Close();
  device().rows_faults = 2;
  Send(1);
  device().AwaitEncodes(1);
  Send(2);
  device().AwaitEncodes(2);
  device().rows_gate.Open();
  answers_.Await(2);
  EXPECT_EQ(CodeOf(1), absl::StatusCode::kInternal);
  EXPECT_EQ(CodeOf(2), absl::StatusCode::kInternal);
  while (device().slots_made < 2) std::this_thread::yield();
  Send(3);
  answers_.Await(3);
  EXPECT_EQ(Rows(3), "");
  EXPECT_EQ(device().slots_made, 2);
}

// However its threads meet them: faults without a good batch between are faults in a row.
TEST_F(EngineOverlapTest, ADeviceOfWhichBothCallsAlwaysFailIsGivenUp) {
  Start(Options());
  device().rows_faults = 1000;
  for (int round = 1; engine_->healthy(); ++round) {
    ASSERT_LE(round, 10);
    device().rows_gate.Close();
    for (const int number : {2 * round - 1, 2 * round}) {
      Send(number);
      device().AwaitEncodes(number);
    }
    device().rows_gate.Open();
    answers_.Await(2 * round);
    while (device().slots_made <= round && engine_->healthy()) std::this_thread::yield();
  }
  EXPECT_EQ(device().slots_made, 5);
}

TEST_F(EngineOverlapTest, WhatWaitsForACallThatIsStuckIsAnsweredToo) {
  EngineOptions options = Options();
  options.device_timeout = absl::Seconds(10);
  std::atomic<int> taken{0};
  observer_.on_queue = [&](int64_t items) { taken += items == 0; };
  Start(options);
  SendTwoAndHoldTheFirst();
  Send(3);  // its call waits for that of the first, whose place it needs
  while (taken < 3) std::this_thread::yield();
  while (answers_.count() < 3) {
    clock_.Advance(absl::Seconds(11));
    std::this_thread::yield();
  }
  EXPECT_EQ(Rows(2), "");  // still
  EXPECT_EQ(CodeOf(1), absl::StatusCode::kInternal);
  EXPECT_EQ(CodeOf(3), absl::StatusCode::kInternal);
  EXPECT_EQ(device().encodes(), 2);
  device().rows_hold.Open();
  while (!engine_->healthy()) std::this_thread::yield();
  Send(4);
  answers_.Await(4);
  EXPECT_EQ(Rows(4), "");
  EXPECT_FALSE(device().third_call);
}

TEST_F(EngineOverlapTest, NumbersThatAreNoneAreLookedIntoAtOnce) {
  Start(Options());
  device().all_nan = true;
  Send(1);
  answers_.Await(1);
  EXPECT_EQ(CodeOf(1), absl::StatusCode::kInternal);
  while (device().slots_made < 2) std::this_thread::yield();
}

TEST_F(EngineOverlapTest, ASlotThatIsLostEndsBothItsThreads) {
  Start(Options());
  device().create_fails = true;
  device().encode_faults = 1;
  Send(1);
  answers_.Await(1);
  EXPECT_EQ(CodeOf(1), absl::StatusCode::kInternal);
  while (engine_->healthy()) std::this_thread::yield();
  Send(2);
  answers_.Await(2);
  EXPECT_EQ(CodeOf(2), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace deepencoder
