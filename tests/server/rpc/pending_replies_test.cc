#include "server/rpc/pending_replies.h"

#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "tests/server/rpc/rpc_fixture.h"

namespace deepencoder {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class PendingRepliesTest : public testing::Test {
 protected:
  // Calls are told apart by the address of a letter.
  const void* Call(char name) const { return &letters_[static_cast<size_t>(name - 'a')]; }

  void Add(PendingReplies& replies, char name, int64_t bytes) {
    replies.Add(Call(name), bytes, [this, name] {
      const MutexLock lock(mutex_);
      cancelled_.emplace_back(1, name);
    });
  }
  std::vector<std::string> Cancelled() {
    const MutexLock lock(mutex_);
    return cancelled_;
  }
  PendingReplies::GivenUp Reasons() {
    return [this](std::string_view why) {
      const MutexLock lock(mutex_);
      reasons_.emplace_back(why);
    };
  }

  const std::string letters_ = "abcdef";
  Mutex mutex_;
  std::vector<std::string> cancelled_ ABSL_GUARDED_BY(mutex_), reasons_ ABSL_GUARDED_BY(mutex_);
};

TEST_F(PendingRepliesTest, TheLongestWaitingGoesWhenThereAreTooManyBytes) {
  PendingReplies replies({.bytes = 100}, Reasons());
  Add(replies, 'a', 40);
  Add(replies, 'b', 40);
  Add(replies, 'c', 20);
  EXPECT_THAT(Cancelled(), IsEmpty());
  replies.Taken(Call('a'), 20);  // b has waited longest now
  Add(replies, 'a', 21);
  EXPECT_THAT(Cancelled(), ElementsAre("b"));
  Add(replies, 'b', 1000);  // its end is under way: counts no more
  replies.Taken(Call('b'), 40);
  EXPECT_THAT(Cancelled(), ElementsAre("b"));
  replies.Remove(Call('b'));
  replies.Taken(Call('c'), 20);  // all of it
  Add(replies, 'd', 59);
  EXPECT_THAT(Cancelled(), ElementsAre("b"));
  Add(replies, 'e', 101);  // alone too much
  EXPECT_THAT(Cancelled(), ElementsAre("b", "a", "d", "e"));
  const MutexLock lock(mutex_);
  EXPECT_THAT(reasons_, ElementsAre("bytes", "bytes", "bytes", "bytes"));
}

TEST_F(PendingRepliesTest, WhoTakesNothingGoesInTime) {
  PendingReplies replies({.timeout = absl::Milliseconds(20)}, Reasons());
  Add(replies, 'a', 1);
  EXPECT_TRUE(Eventually([&] { return Cancelled() == std::vector<std::string>{"a"}; }));
  Add(replies, 'b', 1);
  EXPECT_TRUE(Eventually([&] { return Cancelled() == std::vector<std::string>{"a", "b"}; }));
  replies.Remove(Call('a'));
  replies.Remove(Call('b'));
  replies.Remove(Call('c'));  // never added
  const MutexLock lock(mutex_);
  EXPECT_THAT(reasons_, ElementsAre("time", "time"));
}

TEST_F(PendingRepliesTest, WhatIsTakenOrOverIsNotGivenUp) {
  // Longer than this thread may be held up between two lines.
  PendingReplies replies({.timeout = absl::Seconds(2)}, Reasons());
  Add(replies, 'a', 1);
  replies.Taken(Call('a'), 1);
  Add(replies, 'b', 1);
  replies.Remove(Call('b'));
  Add(replies, 'c', 1);  // and once this one's time is over, so is theirs
  EXPECT_TRUE(Eventually([&] { return !Cancelled().empty(); }));
  EXPECT_THAT(Cancelled(), ElementsAre("c"));
}

}  // namespace
}  // namespace deepencoder
