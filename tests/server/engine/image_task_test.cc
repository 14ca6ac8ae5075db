// How an image leaves the slots before all of its rows are written.
#include "server/engine/image_task.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "tests/server/engine/fakes.h"

namespace deepencoder {
namespace {

class NoMemory final : public ReplyMemory {
 public:
  std::span<std::byte> bytes() const override { return {}; }
  void Abandon() override { ++abandoned; }

  std::atomic<int> abandoned{0};
};

class ImageTaskTest : public ::testing::Test {
 protected:
  std::shared_ptr<ImageTask> Make(bool in_reply_memory) const {
    EncodeJob job;
    job.reply_memory = memory_;
    auto request = std::make_shared<Request>(
        std::move(job), [](const absl::StatusOr<EncodeResult>&) {}, absl::UnixEpoch());
    return std::make_shared<ImageTask>(
        std::move(request), nullptr,
        std::make_shared<const FakeViews>(std::vector<int>{512, 512}, 0), ViewPlan{},
        SequenceLayout{}, TaskRows{.data = nullptr, .in_reply_memory = in_reply_memory},
        StageSeconds{});
  }
  std::function<void()> Say() {
    return [this] { ++said_; };
  }

  const std::shared_ptr<NoMemory> memory_ = std::make_shared<NoMemory>();
  std::atomic<int> said_{0};
};

TEST_F(ImageTaskTest, OneLeavesAndNothingBeginsAfterwards) {
  const auto task = Make(true);
  EXPECT_TRUE(task->BeginWriting());
  EXPECT_FALSE(task->has_left());
  EXPECT_TRUE(task->Leave());
  EXPECT_FALSE(task->Leave());
  EXPECT_TRUE(task->has_left());
  EXPECT_FALSE(task->BeginWriting());
}

TEST_F(ImageTaskTest, TheLastWriterIsWaitedFor) {
  const auto task = Make(true);
  ASSERT_TRUE(task->BeginWriting() && task->BeginWriting() && task->Leave());
  task->WhenUnwritten(Say());
  task->EndWriting();
  EXPECT_EQ(said_, 0);
  task->EndWriting();
  EXPECT_EQ(said_, 1);
}

TEST_F(ImageTaskTest, WithoutAWriterOrInMemoryOfTheEnginesOwnNothingIsWaitedFor) {
  const auto unwritten = Make(true);
  unwritten->WhenUnwritten(Say());
  EXPECT_EQ(said_, 1);
  const auto own = Make(false);
  ASSERT_TRUE(own->BeginWriting() && own->Leave());
  own->WhenUnwritten(Say());
  EXPECT_EQ(said_, 2);
  own->Abandon();
  EXPECT_FALSE(own->abandoned());
  EXPECT_EQ(memory_->abandoned, 0);
}

TEST_F(ImageTaskTest, AStuckWriterIsNotWaitedForBeforeAndAfter) {
  const auto before = Make(true);
  ASSERT_TRUE(before->BeginWriting() && before->Leave());
  before->WhenUnwritten(Say());
  before->Abandon();
  EXPECT_EQ(said_, 1);
  EXPECT_EQ(memory_->abandoned, 1);
  before->EndWriting();
  EXPECT_EQ(said_, 1);

  const auto after = Make(true);
  ASSERT_TRUE(after->BeginWriting() && after->Leave());
  after->Abandon();
  EXPECT_EQ(said_, 1);
  after->WhenUnwritten(Say());  // who left first was slower than the watchdog
  EXPECT_EQ(said_, 2);
}

TEST_F(ImageTaskTest, OfManyAtOnceOneLeavesAndIsHeardOnce) {
  for (int round = 0; round < 200; ++round) {
    const auto task = Make(true);
    ASSERT_TRUE(task->BeginWriting());
    said_ = 0;
    std::atomic<int> left{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < 3; ++i) {
      threads.emplace_back([&] {
        if (!task->Leave()) return;
        ++left;
        task->WhenUnwritten(Say());
      });
    }
    threads.emplace_back([&] { task->EndWriting(); });
    threads.emplace_back([&] { task->Abandon(); });
    for (std::thread& thread : threads) thread.join();
    ASSERT_EQ(left, 1);
    ASSERT_EQ(said_, 1);
  }
}

}  // namespace
}  // namespace deepencoder
