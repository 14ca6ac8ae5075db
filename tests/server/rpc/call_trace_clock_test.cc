// The machine's clock is set while the process runs.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <atomic>
#include <ctime>
#include <vector>

#include "absl/time/clock.h"
#include "server/engine/clock.h"
#include "server/rpc/call_trace.h"

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
