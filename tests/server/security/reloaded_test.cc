#include "server/security/reloaded.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <atomic>
#include <fstream>

#include "absl/time/clock.h"
#include "tests/server/security/test_certificates.h"

namespace deepencoder {
namespace {

using testing::HasSubstr;

constexpr absl::Duration kPeriod = absl::Milliseconds(5);

class ReloadedTest : public testing::Test {
 protected:
  std::unique_ptr<Reloaded<std::string>> Make() {
    auto made = Reloaded<std::string>::Create(
        "text", {path_}, kPeriod,
        [this]() -> absl::StatusOr<std::string> {
          ++loads_;
          if (exhausted_) return absl::UnavailableError("too many open files");
          auto text = ReadSmallFile(path_);
          if (text.ok() && *text == "bad") return absl::InvalidArgumentError("it is bad");
          return text;
        },
        &logger_,
        [this](bool ok) {
          const MutexLock lock(mutex_);
          ++(ok ? good_ : bad_);
        });
    EXPECT_TRUE(made.ok()) << made.status();
    return *std::move(made);
  }

  template <typename Condition>
  bool Eventually(Condition condition) {
    for (int i = 0; i < 20'000; ++i) {
      {
        const MutexLock lock(mutex_);
        if (condition()) return true;
      }
      absl::SleepFor(absl::Milliseconds(1));
    }
    return false;
  }

  std::atomic<bool> exhausted_ = false;
  std::atomic<int> loads_ = 0;
  const std::string path_ = testing::TempDir() + "reloaded_test." + std::to_string(getpid());
  Mutex mutex_;
  std::string log_ ABSL_GUARDED_BY(mutex_);
  int good_ ABSL_GUARDED_BY(mutex_) = 0, bad_ ABSL_GUARDED_BY(mutex_) = 0;
  Logger logger_{LogLevel::kInfo, LogFormat::kText, [this](std::string_view line) {
                   const MutexLock lock(mutex_);
                   log_ += line;
                 }};
};

TEST_F(ReloadedTest, FollowsTheFile) {
  WriteFile(path_, "one");
  const auto value = Make();
  EXPECT_EQ(*value->Get(), "one");
  const auto held = value->Get();
  WriteFile(path_, "two");
  EXPECT_TRUE(Eventually([&] { return *value->Get() == "two"; }));
  EXPECT_EQ(*held, "one");  // whoever uses the old one may end with it
  std::ofstream(path_, std::ios::trunc) << "three, in place";
  EXPECT_TRUE(Eventually([&] { return *value->Get() == "three, in place"; }));
}

TEST_F(ReloadedTest, KeepsWhatItHasWhenTheFileIsBadOrGone) {
  WriteFile(path_, "one");
  const auto value = Make();
  WriteFile(path_, "bad");
  EXPECT_TRUE(Eventually([&] { return bad_ == 1; }));
  EXPECT_EQ(*value->Get(), "one");
  unlink(path_.c_str());
  EXPECT_TRUE(Eventually([&] { return bad_ == 2; }));
  EXPECT_EQ(*value->Get(), "one");
  WriteFile(path_, "two");
  // The last that is done of it.
  EXPECT_TRUE(
      Eventually([&] { return log_.find("read again after a change") != std::string::npos; }));
  EXPECT_EQ(*value->Get(), "two");
  const MutexLock lock(mutex_);
  EXPECT_EQ(good_, 1);
  EXPECT_THAT(log_,
              HasSubstr("what was read before stays in force what=text reason=\"it is bad\""));
}

// A revoked token must not stay valid because descriptors ran short at the moment its file changed.
TEST_F(ReloadedTest, TriesAgainWhatFailedThoughTheFileStaysAsItIs) {
  WriteFile(path_, "one");
  const auto value = Make();
  exhausted_ = true;
  WriteFile(path_, "two");
  EXPECT_TRUE(Eventually([&] { return bad_ == 1; }));
  const int before = loads_;
  EXPECT_TRUE(Eventually([&] { return loads_ > before + 3; }));
  EXPECT_EQ(*value->Get(), "one");
  exhausted_ = false;
  EXPECT_TRUE(Eventually([&] { return *value->Get() == "two" && good_ == 1; }));
  const MutexLock lock(mutex_);
  EXPECT_EQ(bad_, 1);  // one change, one failure to tell of
  EXPECT_EQ(log_.find("cannot be used"), log_.rfind("cannot be used"));
}

// The swap by which Kubernetes replaces the files of a volume.
TEST_F(ReloadedTest, FollowsALink) {
  WriteFile(path_ + ".a", "one");
  WriteFile(path_ + ".b", "two");
  unlink(path_.c_str());
  ASSERT_EQ(symlink((path_ + ".a").c_str(), path_.c_str()), 0);
  const auto value = Make();
  EXPECT_EQ(*value->Get(), "one");
  const std::string next = path_ + ".next";
  ASSERT_EQ(symlink((path_ + ".b").c_str(), next.c_str()), 0);
  ASSERT_EQ(rename(next.c_str(), path_.c_str()), 0);
  EXPECT_TRUE(Eventually([&] { return *value->Get() == "two"; }));
}

TEST_F(ReloadedTest, AFirstLoadThatFailsIsAnError) {
  WriteFile(path_, "bad");
  const auto made = Reloaded<std::string>::Create(
      "text", {path_}, kPeriod,
      []() -> absl::StatusOr<std::string> { return absl::InvalidArgumentError("it is bad"); },
      &logger_, nullptr);
  EXPECT_EQ(made.status().message(), "it is bad");
}

}  // namespace
}  // namespace deepencoder
