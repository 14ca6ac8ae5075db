// The machine's clock is set while the process runs.
#include "server/engine/clock.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <atomic>
#include <ctime>

namespace {

std::atomic<time_t> seconds_ahead{0};  // of the wall clock

}  // namespace

// In the program itself, so in front of the C library's.
extern "C" __attribute__((visibility("default"))) int clock_gettime(clockid_t clock,
                                                                    timespec* time) noexcept {
  static const auto real =
      reinterpret_cast<decltype(&clock_gettime)>(dlsym(RTLD_NEXT, "clock_gettime"));
  const int result = real(clock, time);
  if (result == 0 && clock == CLOCK_REALTIME) time->tv_sec += seconds_ahead;
  return result;
}

namespace deepencoder {
namespace {

// Far more than a test takes, far less than the jumps.
constexpr absl::Duration kLittle = absl::Minutes(10);

TEST(ClockTest, SettingTheWallClockMovesNothing) {
  const SteadyClock clock;
  const absl::Time before = clock.Now(), wall = absl::Now();
  for (const time_t jump : {3600, -3600, 86400 * 365, 0}) {
    seconds_ahead = jump;
    ASSERT_LT(absl::AbsDuration(absl::Now() - wall - absl::Seconds(jump)), kLittle);
    EXPECT_LT(absl::AbsDuration(clock.Now() - before), kLittle);
    // A deadline that a client sets now, by the clock as it is now.
    EXPECT_LT(absl::AbsDuration(ToSteady(absl::Now() + absl::Hours(5)) - before - absl::Hours(5)),
              kLittle);
  }
}

TEST(ClockTest, InfiniteTimesStay) {
  EXPECT_EQ(ToSteady(absl::InfiniteFuture()), absl::InfiniteFuture());
  EXPECT_EQ(ToSteady(absl::InfinitePast()), absl::InfinitePast());
}

}  // namespace
}  // namespace deepencoder
