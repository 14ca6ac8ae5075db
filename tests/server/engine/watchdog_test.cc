#include "server/engine/watchdog.h"

#include <gtest/gtest.h>

#include <atomic>

#include "tests/server/engine/fakes.h"

namespace deepencoder {
namespace {

TEST(WatchdogTest, TellsOnceOfACallThatTakesTooLong) {
  FakeClock clock;
  Watchdog watchdog(absl::Seconds(5), &clock);
  Gate told;
  told.Close();
  std::atomic<int> times{0};
  Watchdog::Call call(&watchdog, [&] {
    ++times;
    told.Open();
  });
  clock.Advance(absl::Seconds(5));
  told.Pass();
  EXPECT_TRUE(call.End());
  EXPECT_TRUE(call.End());
  EXPECT_EQ(times, 1);
}

TEST(WatchdogTest, IsQuietOfACallThatEndsInTime) {
  FakeClock clock;
  std::atomic<int> times{0};
  Watchdog watchdog(absl::Seconds(5), &clock);
  for (int i = 0; i < 100; ++i) {
    Watchdog::Call call(&watchdog, [&] { ++times; });
    clock.Advance(absl::Seconds(4.9));
    EXPECT_FALSE(call.End());
  }
  EXPECT_EQ(times, 0);
}

// End waits for what is being told, which may use what lives as long as the call.
TEST(WatchdogTest, EndWaitsUntilTheLateOneIsTold) {
  FakeClock clock;
  Watchdog watchdog(absl::Seconds(5), &clock);
  for (int i = 0; i < 20; ++i) {
    std::atomic<bool> begun{false}, ended{false};
    Gate late;
    late.Close();
    Watchdog::Call call(&watchdog, [&] {
      begun = true;
      late.Open();
      std::this_thread::yield();
      ended = true;
    });
    clock.Advance(absl::Seconds(6));
    late.Pass();
    EXPECT_TRUE(call.End());
    EXPECT_TRUE(begun && ended);
  }
}

TEST(WatchdogTest, OthersAreWatchedBesideALateOne) {
  FakeClock clock;
  Watchdog watchdog(absl::Seconds(5), &clock);
  Gate first_late, second_late;
  first_late.Close();
  second_late.Close();
  Watchdog::Call first(&watchdog, [&] { first_late.Open(); });
  clock.Advance(absl::Seconds(3));
  Watchdog::Call second(&watchdog, [&] { second_late.Open(); });
  clock.Advance(absl::Seconds(3));
  first_late.Pass();
  Watchdog::Call third(&watchdog, [] { FAIL() << "not late"; });
  clock.Advance(absl::Seconds(3));
  second_late.Pass();
  EXPECT_TRUE(first.End());
  EXPECT_TRUE(second.End());
  EXPECT_FALSE(third.End());
}

TEST(WatchdogTest, WithoutATimeoutNothingIsLate) {
  FakeClock clock;
  Watchdog watchdog(absl::InfiniteDuration(), &clock);
  Watchdog::Call call(&watchdog, [] { FAIL() << "there is no timeout"; });
  clock.Advance(absl::Hours(1000));
  EXPECT_FALSE(call.End());
}

}  // namespace
}  // namespace deepencoder
