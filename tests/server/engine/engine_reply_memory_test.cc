// Rows in memory of the client's: where they go, and that nothing writes there once the job is answered.
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "tests/server/engine/engine_fixture.h"

namespace deepencoder {
namespace {

class TestMemory final : public ReplyMemory {
 public:
  explicit TestMemory(size_t bytes) : bytes_(bytes) {}
  std::span<std::byte> bytes() const override { return bytes_; }
  void Abandon() override { abandoned = true; }

  std::atomic<bool> abandoned{false};

 private:
  mutable std::vector<std::byte> bytes_;
};

class EngineReplyMemoryTest : public EngineTest {
 protected:
  ~EngineReplyMemoryTest() override { engine_.reset(); }  // it logs to this object

  static constexpr int kPage = 1;  // the tag of the image in question
  static EncodeJob WithMemory(EncodeJob job, std::shared_ptr<ReplyMemory> memory) {
    job.reply_memory = std::move(memory);
    return job;
  }
  // Two tiles and a global view.
  EncodeJob Page() const { return WithMemory(RawJob(kPage, Mode::kGundam, 1300, 700), memory_); }

  // What was posted before an answer that is here was delivered before it: so this tells whether the page has been
  // answered by what was done until now.
  bool PageIsAnswered() {
    const int count = answers_.count();
    Send(number_, WithMemory(RawJob(98), std::make_shared<TestMemory>(1)));  // fails: too small
    answers_.Await(count + 1);
    EXPECT_EQ(answers_.times(number_++), 1);
    return answers_.times(kPage) > 0;
  }

  const std::shared_ptr<TestMemory> memory_ = std::make_shared<TestMemory>(size_t{4} << 20);
  int number_ = 1000;
};

TEST_F(EngineReplyMemoryTest, RowsLieThere) {
  Start(Options());
  Send(kPage, Page());
  answers_.Await(1);
  const auto result = answers_.Get(kPage);
  ASSERT_TRUE(result.ok()) << result.status().ToString();
  EXPECT_EQ(result->data.get(), memory_->bytes().data());
  EXPECT_TRUE(result->in_reply_memory);
  EXPECT_EQ(CheckRows(*result, 0, kPage), "");
  EXPECT_FALSE(memory_->abandoned);
}

// It is written to its last row and not behind.
TEST_F(EngineReplyMemoryTest, ExactlyEnoughIsEnough) {
  Start(Options());
  const size_t bytes = ReplyBytes(LayoutOf(Mode::kTiny, {}).rows, DType::kBf16);
  Send(1, WithMemory(RawJob(1), std::make_shared<TestMemory>(bytes)));
  Send(2, WithMemory(RawJob(2), std::make_shared<TestMemory>(bytes - 1)));
  answers_.Await(2);
  EXPECT_TRUE(answers_.Get(1).ok());
  EXPECT_EQ(CodeOf(2), absl::StatusCode::kInvalidArgument);
  EXPECT_FALSE(device().WasEncoded(2));
}

// A client could change what others get of it.
TEST_F(EngineReplyMemoryTest, WhatIsKeptForOthersLiesElsewhere) {
  EngineOptions options = Options();
  options.cache_bytes = int64_t{1} << 30;
  Start(options);
  Send(kPage, Page());
  answers_.Await(1);
  const auto result = answers_.Get(kPage);
  ASSERT_TRUE(result.ok());
  EXPECT_NE(result->data.get(), memory_->bytes().data());
  EXPECT_FALSE(result->in_reply_memory);
  EXPECT_EQ(CheckRows(*result, 0, kPage), "");
}

TEST_F(EngineReplyMemoryTest, AFailedImageIsAnsweredWhenTheOtherSlotIsDone) {
  Start(Options(), 1, 2, {1});
  device().encode_gate.Close();
  Send(kPage, Page());
  device().AwaitEncodes(2);
  device().encode_faults = 1;
  device().encode_gate.Admit(1);
  while (device().slots_made < 3) std::this_thread::yield();  // so it has failed
  EXPECT_FALSE(PageIsAnswered());
  device().encode_gate.Open();
  answers_.Await(2);
  EXPECT_EQ(CodeOf(kPage), absl::StatusCode::kInternal);
  EXPECT_EQ(device().encodes(), 2);  // no view was begun after that
  EXPECT_FALSE(memory_->abandoned);
}

TEST_F(EngineReplyMemoryTest, ACancelledOneToo) {
  Start(Options(), 1, 2, {1});
  device().encode_gate.Close();
  EncodeJob page = Page();
  page.cancel = std::make_shared<CancelFlag>();
  const auto cancel = page.cancel;
  Send(kPage, std::move(page));
  device().AwaitEncodes(2);
  cancel->Cancel();
  device().encode_gate.Admit(1);
  while (observer_.drops[static_cast<int>(DropReason::kCancelled)] < 1) std::this_thread::yield();
  EXPECT_FALSE(PageIsAnswered());
  device().encode_gate.Open();
  answers_.Await(2);
  EXPECT_EQ(CodeOf(kPage), absl::StatusCode::kCancelled);
  EXPECT_EQ(device().encodes(), 2);
  EXPECT_EQ(observer_.in_flight_images, 0);
}

// Rows of the engine's own are nobody else's business.
TEST_F(EngineReplyMemoryTest, WithoutItNothingIsWaitedFor) {
  Start(Options(), 1, 2, {1});
  device().encode_gate.Close();
  Send(kPage, RawJob(kPage, Mode::kGundam, 1300, 700));
  device().AwaitEncodes(2);
  device().encode_faults = 1;
  device().encode_gate.Admit(1);
  answers_.Await(1);
  EXPECT_EQ(CodeOf(kPage), absl::StatusCode::kInternal);
  device().encode_gate.Open();
}

TEST_F(EngineReplyMemoryTest, AStuckCallIsNotWaitedForAndTheMemoryGivenUp) {
  EngineOptions options = Options();
  options.device_timeout = absl::Seconds(10);
  Start(options, 1, 2, {1});
  device().encode_gate.Close();
  Send(kPage, Page());
  device().AwaitEncodes(2);
  device().encode_faults = 1;
  device().encode_gate.Admit(1);
  while (device().slots_made < 3) std::this_thread::yield();
  EXPECT_FALSE(PageIsAnswered());  // one call failed; the other is about to be stuck
  EXPECT_FALSE(memory_->abandoned);
  clock_.Advance(absl::Seconds(11));
  answers_.Await(2);
  EXPECT_EQ(CodeOf(kPage), absl::StatusCode::kInternal);
  EXPECT_TRUE(memory_->abandoned);
  device().encode_gate.Open();
}

TEST_F(EngineReplyMemoryTest, AnImageThatMovesToAnotherDeviceWaitsForTheFirst) {
  EngineOptions options = Options();
  options.decode_threads = 2;
  options.device_timeout = absl::Seconds(10);
  Start(options, 2, 1, {1});
  for (int i = 0; i < 2; ++i) device(i).encode_gate.Close();
  Send(kPage, Page());
  device(0).AwaitEncodes(1);
  Send(5, RawJob(5, Mode::kGundam, 900, 1200));  // six tiles: the other device has more to do
  device(1).AwaitEncodes(1);
  device(0).views_gate.Close();
  Send(2);
  device(0).AwaitViews(2);
  clock_.Advance(absl::Seconds(6));
  device(0).encode_gate.Admit(
      1);  // its next view begins now, 6 s after the call that will be stuck
  device(0).AwaitEncodes(2);
  device(1).encode_gate.Open();
  answers_.Await(1);
  ASSERT_TRUE(answers_.Get(5).ok());
  clock_.Advance(absl::Seconds(5));
  answers_.Await(2);  // the one whose views are stuck; the device is lost
  EXPECT_EQ(CodeOf(2), absl::StatusCode::kInternal);
  Send(6);  // by the one decode thread that is left, behind whatever was there before
  answers_.Await(3);
  EXPECT_FALSE(device(1).WasViewed(kPage));
  device(0).encode_gate.Open();
  answers_.Await(4);
  const auto result = answers_.Get(kPage);
  ASSERT_TRUE(result.ok()) << result.status().ToString();
  EXPECT_TRUE(device(1).WasViewed(kPage));
  EXPECT_EQ(CheckRows(*result, 0, kPage), "");
  EXPECT_FALSE(memory_->abandoned);
  device(0).views_gate.Open();
}

}  // namespace
}  // namespace deepencoder
