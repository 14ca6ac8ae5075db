#include "server/engine/admission.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>

#include "server/engine/retry_hint.h"
#include "tests/server/engine/fakes.h"

namespace deepencoder {
namespace {

using ::testing::HasSubstr;

class AdmissionTest : public ::testing::Test {
 protected:
  std::string Message(const absl::Status& status) { return std::string(status.message()); }

  FakeClock clock_;
  CountingObserver observer_;
  Admission admission_{{.images = 2, .bytes = 100, .views = 10}, &observer_, &clock_};
};

TEST_F(AdmissionTest, EachBoundIsKeptAndNamed) {
  ASSERT_TRUE(admission_.Admit({.bytes = 60, .views = 6}).ok());
  const absl::Status bytes = admission_.Admit({.bytes = 41, .views = 1});
  EXPECT_EQ(bytes.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(Message(bytes), HasSubstr("100 bytes"));
  const absl::Status views = admission_.Admit({.bytes = 1, .views = 5});
  EXPECT_THAT(Message(views), HasSubstr("10 views"));
  ASSERT_TRUE(admission_.Admit({.bytes = 40, .views = 4}).ok());  // exactly full
  const absl::Status images = admission_.Admit({.bytes = 0, .views = 0});
  EXPECT_THAT(Message(images), HasSubstr("2 images"));
  EXPECT_EQ(observer_.rejects[static_cast<int>(RejectReason::kBytes)], 1);
  EXPECT_EQ(observer_.rejects[static_cast<int>(RejectReason::kViews)], 1);
  EXPECT_EQ(observer_.rejects[static_cast<int>(RejectReason::kImages)], 1);
  EXPECT_EQ(observer_.in_flight_images, 2);
  EXPECT_EQ(observer_.in_flight_bytes, 100);
}

TEST_F(AdmissionTest, WhatIsReleasedIsFreeAgain) {
  Charge charge{.bytes = 100, .views = 10};
  ASSERT_TRUE(admission_.Admit(charge).ok());
  admission_.Resize(&charge, 30);
  EXPECT_EQ(observer_.in_flight_bytes, 30);
  admission_.Release(charge, clock_.Now());
  EXPECT_EQ(observer_.in_flight_bytes, 0);
  EXPECT_EQ(observer_.in_flight_images, 0);
  EXPECT_TRUE(admission_.Admit({.bytes = 100, .views = 10}).ok());
}

TEST_F(AdmissionTest, WhatCanNeverFitIsNotToldToRetry) {
  const absl::Status bytes = admission_.Admit({.bytes = 101, .views = 1});
  EXPECT_EQ(bytes.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(RetryAfter(bytes), std::nullopt);
  const absl::Status views = admission_.Admit({.bytes = 1, .views = 11});
  EXPECT_EQ(views.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(RetryAfter(views), std::nullopt);
}

TEST_F(AdmissionTest, TheRetryHintFollowsHowLongImagesStay) {
  for (int i = 0; i < 200; ++i) {
    const absl::Time admitted = clock_.Now();
    ASSERT_TRUE(admission_.Admit({.bytes = 1, .views = 1}).ok());
    clock_.Advance(absl::Milliseconds(300));
    admission_.Release({.bytes = 1, .views = 1}, admitted);
  }
  ASSERT_TRUE(admission_.Admit({.bytes = 100, .views = 1}).ok());
  const absl::Status full = admission_.Admit({.bytes = 1, .views = 1});
  ASSERT_TRUE(RetryAfter(full).has_value());
  EXPECT_GE(*RetryAfter(full), absl::Milliseconds(290));
  EXPECT_LE(*RetryAfter(full), absl::Milliseconds(300));
}

TEST_F(AdmissionTest, ClosedItAdmitsNothing) {
  admission_.Close();
  EXPECT_EQ(admission_.Admit({}).code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(observer_.rejects[static_cast<int>(RejectReason::kDraining)], 1);
}

TEST_F(AdmissionTest, IdleMeansAnswered) {
  ASSERT_TRUE(admission_.Admit({}).ok());
  admission_.Release({}, clock_.Now());
  EXPECT_FALSE(admission_.AwaitIdle(clock_.Now()));  // released, not answered
  std::thread answer([&] { admission_.Answered(); });
  EXPECT_TRUE(admission_.AwaitIdle(absl::InfiniteFuture()));
  answer.join();
}

TEST(RetryHintTest, TravelsWithTheStatus) {
  const absl::Status status =
      WithRetryAfter(absl::ResourceExhaustedError("full"), absl::Milliseconds(1234));
  EXPECT_EQ(RetryAfter(status), absl::Milliseconds(1234));
  EXPECT_EQ(status.message(), "full");
  EXPECT_EQ(RetryAfter(absl::ResourceExhaustedError("full")), std::nullopt);
  EXPECT_EQ(RetryAfter(absl::OkStatus()), std::nullopt);
  // Never "at once": that would be a busy loop.
  EXPECT_EQ(RetryAfter(WithRetryAfter(status, absl::Microseconds(1))), absl::Milliseconds(1));
}

}  // namespace
}  // namespace deepencoder
