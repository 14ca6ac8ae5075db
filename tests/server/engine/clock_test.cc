// The machine's clock is set while the process runs.
#include "server/engine/clock.h"

#include <gtest/gtest.h>

#include <ctime>

#include "tests/server/engine/set_wall_clock.h"

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
