#include "server/reloader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <new>
#include <optional>
#include <set>
#include <stdexcept>

#include "absl/time/clock.h"

namespace deepencoder {
namespace {

using testing::HasSubstr;
using Answer = absl::StatusOr<ReloadReport>;

// A reload that waits until it is let go.
class ReloaderTest : public testing::Test {
 protected:
  std::future<Answer> Start(const std::string& folder = "next") {
    auto promise = std::make_shared<std::promise<Answer>>();
    reloader_.Start(folder, [promise](const Answer& answer) { promise->set_value(answer); });
    return promise->get_future();
  }

  void Finish(Answer answer) { end_.set_value(std::move(answer)); }

  std::promise<std::string> began_;
  std::promise<Answer> end_;
  std::optional<bool> asked_to_stop_;
  Reloader reloader_{[this](const std::string& folder, const std::atomic<bool>& stop) {
    began_.set_value(folder);
    Answer answer = end_.get_future().get();
    asked_to_stop_ = stop;
    return answer;
  }};
};

TEST_F(ReloaderTest, RefusesBeforeItIsOpen) {
  EXPECT_EQ(Start().get().status().code(), absl::StatusCode::kUnavailable);
}

TEST_F(ReloaderTest, TellsHowItEnded) {
  reloader_.Open();
  auto reload = Start("folder");
  EXPECT_EQ(began_.get_future().get(), "folder");
  Finish(ReloadReport{.folder = "folder", .old_fingerprint = "a", .new_fingerprint = "b"});
  const Answer answer = reload.get();
  ASSERT_TRUE(answer.ok());
  EXPECT_EQ(answer->new_fingerprint, "b");
}

TEST_F(ReloaderTest, OneAtATime) {
  reloader_.Open();
  auto first = Start();
  const Answer second = Start().get();
  EXPECT_EQ(second.status().code(), absl::StatusCode::kAborted);
  Finish(absl::NotFoundError("no such folder"));
  EXPECT_EQ(first.get().status().code(), absl::StatusCode::kNotFound);
}

TEST_F(ReloaderTest, ClosingAnswersAtOnceAndAsksTheWorkToStop) {
  reloader_.Open();
  auto reload = Start();
  began_.get_future().wait();
  reloader_.Close();
  EXPECT_EQ(reload.get().status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(Start().get().status().code(), absl::StatusCode::kUnavailable);
  EXPECT_FALSE(reloader_.AwaitEnd(absl::Now()));
  Finish(absl::CancelledError("stopped"));
  EXPECT_TRUE(reloader_.AwaitEnd(absl::InfiniteFuture()));
  EXPECT_EQ(asked_to_stop_, true);
}

TEST(ReloaderEndTest, ClosedIdle) {
  Reloader reloader([](const std::string&, const std::atomic<bool>&) -> Answer {
    ADD_FAILURE() << "nobody asked";
    return absl::InternalError("");
  });
  reloader.Open();
  reloader.Close();
  EXPECT_TRUE(reloader.AwaitEnd(absl::Now()));
}

TEST(ReloaderEndTest, WhatIsThrownIsAnAnswer) {
  int turn = 0;
  Reloader reloader([&turn](const std::string&, const std::atomic<bool>&) -> Answer {
    if (turn++ == 0) throw std::bad_alloc();
    throw std::runtime_error("a library's");
  });
  reloader.Open();
  for (const auto code : {absl::StatusCode::kResourceExhausted, absl::StatusCode::kInternal}) {
    std::promise<Answer> answer;
    reloader.Start("", [&answer](const Answer& told) { answer.set_value(told); });
    EXPECT_EQ(answer.get_future().get().status().code(), code);
  }
}

TEST(ReloadResultTest, EveryStatusHasALabelOfItsKind) {
  std::set<std::string_view> names;
  for (const ReloadResult result : kReloadResults) EXPECT_TRUE(names.insert(Name(result)).second);
  EXPECT_EQ(ReloadResultOf(absl::OkStatus()), ReloadResult::kOk);
  EXPECT_EQ(ReloadResultOf(absl::AbortedError("")), ReloadResult::kBusy);
  EXPECT_EQ(ReloadResultOf(absl::ResourceExhaustedError("")), ReloadResult::kMemory);
  EXPECT_EQ(ReloadResultOf(absl::NotFoundError("")), ReloadResult::kCheckpoint);
  EXPECT_EQ(ReloadResultOf(absl::InvalidArgumentError("")), ReloadResult::kCheckpoint);
  EXPECT_EQ(ReloadResultOf(absl::FailedPreconditionError("")), ReloadResult::kCheckpoint);
  EXPECT_EQ(ReloadResultOf(absl::CancelledError("")), ReloadResult::kStopping);
  EXPECT_EQ(ReloadResultOf(absl::InternalError("")), ReloadResult::kFailed);
}

}  // namespace
}  // namespace deepencoder
