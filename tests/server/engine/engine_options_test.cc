#include "server/engine/engine_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>

namespace deepencoder {
namespace {

using testing::HasSubstr;

std::string Refusal(const EngineOptions& options) {
  const absl::Status status = Check(options);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  return std::string(status.message());
}

TEST(EngineOptionsTest, DefaultsAndTheSmallestAreGood) {
  EXPECT_TRUE(Check({}).ok());
  EngineOptions smallest;
  smallest.limits = {.images = 1, .bytes = 1, .views = 1};
  smallest.batch.max_delay = smallest.batch.patience = absl::ZeroDuration();
  smallest.batch.max_padding = 0;
  smallest.device_timeout = absl::Nanoseconds(1);
  EXPECT_TRUE(Check(smallest).ok());
}

TEST(EngineOptionsTest, BoundsOfNothingAreRefused) {
  for (int64_t AdmissionLimits::*bound :
       {&AdmissionLimits::images, &AdmissionLimits::bytes, &AdmissionLimits::views}) {
    EngineOptions options;
    options.limits.*bound = 0;
    EXPECT_THAT(Refusal(options), HasSubstr("at least 1"));
  }
}

TEST(EngineOptionsTest, TimesAndSharesOutOfRangeAreRefused) {
  for (absl::Duration BatchPolicy::*time : {&BatchPolicy::max_delay, &BatchPolicy::patience}) {
    EngineOptions options;
    options.batch.*time = -absl::Nanoseconds(1);
    EXPECT_THAT(Refusal(options), HasSubstr("must not be negative"));
  }
  for (const double padding : {-0.1, 1.1, std::numeric_limits<double>::quiet_NaN()}) {
    EngineOptions options;
    options.batch.max_padding = padding;
    EXPECT_THAT(Refusal(options), HasSubstr("the padding outside [0, 1]"));
  }
  EngineOptions timeout;
  timeout.device_timeout = absl::ZeroDuration();
  EXPECT_THAT(Refusal(timeout), HasSubstr("must be positive"));
  EngineOptions threads;
  threads.decode_threads = -1;
  EXPECT_THAT(Refusal(threads), HasSubstr("decode threads"));
}

}  // namespace
}  // namespace deepencoder
