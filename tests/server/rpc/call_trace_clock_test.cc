// The machine's clock is set while the process runs.
#include <gtest/gtest.h>

#include <ctime>
#include <vector>

#include "absl/time/clock.h"
#include "server/engine/clock.h"
#include "server/rpc/call_trace.h"
#include "tests/server/engine/set_wall_clock.h"

namespace deepencoder {
namespace {

// Far more than a test takes, far less than the jumps.
constexpr absl::Duration kLittle = absl::Minutes(10);

struct Kept final : SpanSink {
  void Add(std::vector<Span> added) override { spans = std::move(added); }
  std::vector<Span> spans;
};

TEST(CallTraceClockTest, ACallsTimesAreTheWallClocksAsItIsNow) {
  Kept sink;
  const Tracer tracer(1, &sink);
  SteadyNow();  // counts from here
  for (const time_t jump : {0, 3600, -3600, 86400 * 365}) {
    seconds_ahead = jump;
    const absl::Time now = absl::Now();
    grpc::CallbackServerContext context;
    CallTrace(&tracer, context, Method::kGetModelInfo, "r1").End(grpc::OK);
    ASSERT_EQ(sink.spans.size(), 1U);
    EXPECT_LT(absl::AbsDuration(sink.spans.front().begin - now), kLittle) << jump;
    EXPECT_LT(absl::AbsDuration(sink.spans.front().end - now), kLittle) << jump;
  }
  seconds_ahead = 0;
}

}  // namespace
}  // namespace deepencoder
