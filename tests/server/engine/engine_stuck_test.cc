// Calls into a device that do not return in time, and values that are not numbers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "server/engine/retry_hint.h"
#include "tests/server/engine/engine_fixture.h"

namespace deepencoder {
namespace {

using testing::HasSubstr;

class EngineStuckTest : public EngineTest {
 protected:
  ~EngineStuckTest() override { engine_.reset(); }  // it logs to this object

  EngineOptions Options() {
    EngineOptions options = EngineTest::Options();
    options.device_timeout = absl::Seconds(10);
    options.log = [this](const std::string& line) {
      MutexLock lock(mutex_);
      log_.push_back(line);
      changed_.NotifyAll();
    };
    return options;
  }

  void PassTimeout() { clock_.Advance(absl::Seconds(11)); }

  // Waits for a line of the log that has `text`.
  void AwaitLog(const std::string& text) {
    MutexLock lock(mutex_);
    while (!Has(text)) changed_.Wait(mutex_);
  }

 private:
  bool Has(const std::string& text) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    for (const std::string& line : log_) {
      if (line.find(text) != std::string::npos) return true;
    }
    return false;
  }

  Mutex mutex_;
  CondVar changed_;
  std::vector<std::string> log_ ABSL_GUARDED_BY(mutex_);
};

TEST_F(EngineStuckTest, AStuckBatchFailsInTimeAndTheDeviceMayComeBack) {
  Start(Options());
  device().encode_gate.Close();
  Send(1);
  device().AwaitEncodes(1);
  Send(2);
  while (observer_.queue_items < 1) std::this_thread::yield();  // it waits for the device
  PassTimeout();
  answers_.Await(2);
  EXPECT_EQ(CodeOf(1), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(answers_.Get(1).status().message()), HasSubstr("within 10s"));
  EXPECT_EQ(CodeOf(2), absl::StatusCode::kUnavailable);
  EXPECT_FALSE(engine_->healthy());
  Send(3);
  EXPECT_EQ(CodeOf(3), absl::StatusCode::kUnavailable);

  device().encode_gate.Open();
  AwaitLog("works again");
  EXPECT_TRUE(engine_->healthy());
  Send(4);
  answers_.Await(4);
  ASSERT_TRUE(answers_.Get(4).ok());
  EXPECT_EQ(CheckRows(*answers_.Get(4), 0, 4), "");
  EXPECT_EQ(answers_.times(1), 1);  // what came late went nowhere
  EXPECT_EQ(device().slots_made, 2);
  EXPECT_EQ(device().slots_destroyed, 1);
  EXPECT_EQ(observer_.in_flight_images, 0);
  EXPECT_EQ(observer_.queue_items, 0);
}

TEST_F(EngineStuckTest, TheOtherSlotServesOn) {
  Start(Options(), 1, 2);
  device().hold.Close();
  device().held_tag = 1;
  Send(1);
  device().AwaitEncodes(1);
  PassTimeout();
  answers_.Await(1);
  EXPECT_EQ(CodeOf(1), absl::StatusCode::kInternal);
  EXPECT_TRUE(engine_->healthy());
  for (int tag = 2; tag <= 5; ++tag) {
    Send(tag);
    answers_.Await(tag);
    EXPECT_TRUE(answers_.Get(tag).ok());
  }
  device().hold.Open();
}

// Though the device is lost and other views of it wait there.
TEST_F(EngineStuckTest, AnImageOfAStuckCallDoesNotMove) {
  Start(Options(), 2, 1, {1});
  device(0).encode_gate.Close();
  Send(1, RawJob(1, Mode::kGundam, 1300, 700));  // two tiles and a global view
  device(0).AwaitEncodes(1);
  PassTimeout();
  answers_.Await(1);
  EXPECT_EQ(CodeOf(1), absl::StatusCode::kInternal);
  Send(2);  // by the one decode thread, behind whatever came before
  answers_.Await(2);
  EXPECT_TRUE(answers_.Get(2).ok());
  EXPECT_FALSE(device(1).WasViewed(1));
  device(0).encode_gate.Open();
}

TEST_F(EngineStuckTest, ViewsThatGetStuckFailInTime) {
  EngineOptions options = Options();
  options.decode_threads = 2;
  Start(options);
  device().views_gate.Close();
  Send(1);
  device().AwaitViews(1);
  PassTimeout();
  answers_.Await(1);
  EXPECT_EQ(CodeOf(1), absl::StatusCode::kInternal);
  EXPECT_FALSE(engine_->healthy());
  device().views_gate.Open();
  AwaitLog("works again");
  Send(2);
  answers_.Await(2);
  EXPECT_TRUE(answers_.Get(2).ok());
  EXPECT_EQ(answers_.times(1), 1);
}

// Every thread that could come for them is stuck.
TEST_F(EngineStuckTest, WhatWaitsBehindStuckViewsIsAnswered) {
  Start(Options(), 2);  // with a device that works beside it, and one decode thread
  for (int i = 0; i < 2; ++i) device(i).views_gate.Close();
  Send(1);
  device(0).AwaitViews(1);
  Send(2);
  Send(3);
  PassTimeout();
  answers_.Await(3);
  EXPECT_EQ(CodeOf(1), absl::StatusCode::kInternal);
  EXPECT_EQ(CodeOf(2), absl::StatusCode::kUnavailable);
  EXPECT_EQ(CodeOf(3), absl::StatusCode::kUnavailable);
  Send(4);
  EXPECT_EQ(CodeOf(4), absl::StatusCode::kUnavailable);
  for (int i = 0; i < 2; ++i) device(i).views_gate.Open();
  AwaitLog("works again");
  while (!engine_->healthy()) std::this_thread::yield();
  EXPECT_EQ(observer_.in_flight_images, 0);
}

TEST_F(EngineStuckTest, ASlotThatGetsStuckBeingRebuiltIsNoticed) {
  Start(Options());
  device().create_gate.Close();
  device().encode_faults = 1;
  Send(1);
  answers_.Await(1);
  EXPECT_TRUE(engine_->healthy());  // being rebuilt
  AwaitLog("slot 0 failed");
  // The watch begins after that line: time passes until it has been noticed.
  while (engine_->healthy()) PassTimeout();
  device().create_gate.Open();
  AwaitLog("works again");
  Send(2);
  answers_.Await(2);
  EXPECT_TRUE(answers_.Get(2).ok());
}

TEST_F(EngineStuckTest, AStuckSlotThatCannotBeRebuiltIsLost) {
  Start(Options());
  device().encode_gate.Close();
  device().create_fails = true;
  Send(1);
  device().AwaitEncodes(1);
  PassTimeout();
  answers_.Await(1);
  device().encode_gate.Open();
  AwaitLog("cannot be rebuilt");
  engine_.reset();  // its thread has ended
  EXPECT_EQ(device().slots_destroyed, 1);
  EXPECT_EQ(device().slots_made, 1);
}

TEST_F(EngineStuckTest, WhatIsInTimeIsNotStuck) {
  Start(Options());
  for (int tag = 1; tag <= 3; ++tag) {
    device().encode_gate.Close();
    Send(tag);
    device().AwaitEncodes(tag);
    clock_.Advance(absl::Seconds(9));
    device().encode_gate.Open();
    answers_.Await(tag);
    EXPECT_TRUE(answers_.Get(tag).ok());
  }
  EXPECT_EQ(device().slots_made, 1);
}

// A client could make its own image come out so: no fault of the device.
TEST_F(EngineStuckTest, ValuesThatAreNotFiniteFailTheirImageAlone) {
  Start(Options());
  device().nan_tag = 1;
  device().encode_gate.Close();
  Send(7);  // holds the slot, so that the others share a batch
  device().AwaitEncodes(1);
  for (int tag = 1; tag <= 3; ++tag) Send(tag);
  device().AwaitViews(4);
  device().encode_gate.Open();
  answers_.Await(4);
  EXPECT_EQ(CodeOf(1), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(answers_.Get(1).status().message()), HasSubstr("finite"));
  EXPECT_EQ(CheckRows(*answers_.Get(2), 0, 2), "");
  EXPECT_EQ(CheckRows(*answers_.Get(3), 0, 3), "");
  for (int sent = 0; sent < 10; ++sent) {
    Send(100 + sent, RawJob(1));
    answers_.Await(5 + sent);
    EXPECT_EQ(CodeOf(100 + sent), absl::StatusCode::kInternal);
  }
  EXPECT_TRUE(engine_->healthy());
  EXPECT_EQ(device().slots_made, 1);
}

TEST_F(EngineStuckTest, ValuesOfEveryTypeAreLookedAt) {
  Start(Options());
  device().nan_tag = 1;
  int sent = 0;
  for (const DType dtype : {DType::kBf16, DType::kFp16, DType::kFp32}) {
    for (const int tag : {1, 2}) {
      EncodeJob job = RawJob(tag);
      job.dtype = dtype;
      Send(++sent, std::move(job));
      answers_.Await(sent);
      EXPECT_EQ(answers_.Get(sent).ok(), tag == 2) << Name(dtype);
    }
  }
}

TEST_F(EngineStuckTest, ADeviceThatMakesNothingFiniteIsNotHealthy) {
  Start(Options());
  device().all_nan = true;
  int sent = 0;
  while (engine_->healthy()) {
    Send(++sent);
    answers_.Await(sent);
    ASSERT_FALSE(answers_.Get(sent).ok());
    ASSERT_LT(device().encodes(), 20);
  }
  EXPECT_GT(device().slots_made, 1);
}

TEST_F(EngineStuckTest, MemoryThatRunsOutInAnEncodeEndsNoThread) {
  Start(Options());
  device().encode_throws = 1;
  Send(1);
  Send(2);
  answers_.Await(2);
  EXPECT_EQ(CodeOf(1), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(RetryAfter(answers_.Get(1).status()).has_value());
}

}  // namespace
}  // namespace deepencoder
