#include "server/rpc/request_limit.h"

#include <gmock/gmock.h>

#include <vector>

#include "server/engine/retry_hint.h"
#include "tests/server/engine/fakes.h"

namespace deepencoder {
namespace {

using testing::HasSubstr;

class RequestLimitTest : public testing::Test {
 protected:
  int rejects() const { return observer_.rejects[static_cast<size_t>(RejectReason::kRequests)]; }

  FakeClock clock_;
  CountingObserver observer_;
  RequestLimit limit_{2, &observer_, &clock_};
};

TEST_F(RequestLimitTest, TurnsAwayWhatIsBeyondUntilAPlaceIsFree) {
  std::vector<RequestLimit::Place> places;
  for (int i = 0; i < 2; ++i) {
    absl::StatusOr<RequestLimit::Place> place = RequestLimit::Take(&limit_);
    ASSERT_TRUE(place.ok()) << place.status();
    places.push_back(*std::move(place));
  }
  EXPECT_EQ(rejects(), 0);
  const absl::Status full = RequestLimit::Take(&limit_).status();
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(full.message()), HasSubstr("limit: 2 requests"));
  EXPECT_EQ(RetryAfter(full), absl::Milliseconds(10));
  EXPECT_EQ(rejects(), 1);
  places.pop_back();
  EXPECT_TRUE(RequestLimit::Take(&limit_).ok());  // and gives it back at once
  EXPECT_TRUE(RequestLimit::Take(&limit_).ok());
  EXPECT_EQ(rejects(), 1);
}

TEST_F(RequestLimitTest, TheRetryDelayIsHowLongCallsTake) {
  for (int i = 0; i < 200; ++i) {
    const auto place = RequestLimit::Take(&limit_);
    clock_.Advance(absl::Seconds(2));
  }
  const auto first = RequestLimit::Take(&limit_), second = RequestLimit::Take(&limit_);
  const auto delay = RetryAfter(RequestLimit::Take(&limit_).status());
  ASSERT_TRUE(delay.has_value());
  EXPECT_GT(*delay, absl::Milliseconds(1990));
  EXPECT_LE(*delay, absl::Seconds(2));
}

TEST_F(RequestLimitTest, NoLimitHasRoomForAll) {
  const absl::StatusOr<RequestLimit::Place> place = RequestLimit::Take(nullptr);
  ASSERT_TRUE(place.ok());
  EXPECT_EQ(*place, nullptr);
}

}  // namespace
}  // namespace deepencoder
