#include "server/engine/client_limits.h"

#include <gmock/gmock.h>

#include <memory>
#include <utility>
#include <vector>

#include "server/engine/limited_engine.h"
#include "server/engine/retry_hint.h"
#include "tests/server/engine/fakes.h"

namespace deepencoder {
namespace {

using testing::HasSubstr;

class ClientLimitsTest : public testing::Test {
 protected:
  // How it went: "ok", or the reason's name.
  std::string Try(ClientLimits& limits, const std::string& client, int64_t bytes = 1) {
    RejectReason reason{};
    last_ = limits.Admit(client, bytes, &reason);
    if (last_.ok()) return "ok";
    EXPECT_EQ(last_.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_TRUE(RetryAfter(last_).has_value()) << last_;
    return std::string(Name(reason));
  }

  FakeClock clock_;
  absl::Status last_;
};

TEST_F(ClientLimitsTest, ImagesASecond) {
  ClientLimits limits({.images_per_second = 4}, &clock_);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(Try(limits, "a"), "ok") << i;
  EXPECT_EQ(Try(limits, "a"), "client_rate");
  EXPECT_THAT(std::string(last_.message()), HasSubstr("4 images a second"));
  EXPECT_EQ(RetryAfter(last_), absl::Milliseconds(250));
  EXPECT_EQ(Try(limits, "b"), "ok");  // another client has its own
  clock_.Advance(absl::Milliseconds(250));
  EXPECT_EQ(Try(limits, "a"), "ok");
  EXPECT_EQ(Try(limits, "a"), "client_rate");
  clock_.Advance(-absl::Hours(1));  // set back: nothing is given, nothing is taken
  EXPECT_EQ(Try(limits, "a"), "client_rate");
  clock_.Advance(absl::Hours(2));  // no more than a second's worth
  for (int i = 0; i < 4; ++i) EXPECT_EQ(Try(limits, "a"), "ok") << i;
  EXPECT_EQ(Try(limits, "a"), "client_rate");
}

TEST_F(ClientLimitsTest, BytesASecondMayBeOwed) {
  ClientLimits limits({.bytes_per_second = 1000}, &clock_);
  EXPECT_EQ(Try(limits, "a", 3000), "ok");  // larger than a second's worth: it must pass some day
  EXPECT_EQ(Try(limits, "a", 1), "client_bytes");
  EXPECT_EQ(RetryAfter(last_), absl::Seconds(2));
  clock_.Advance(absl::Seconds(2) + absl::Milliseconds(1));
  EXPECT_EQ(Try(limits, "a", 1), "ok");
}

TEST_F(ClientLimitsTest, ImagesInFlight) {
  ClientLimits limits({.images_in_flight = 2}, &clock_);
  EXPECT_EQ(Try(limits, "a"), "ok");
  EXPECT_EQ(Try(limits, "a"), "ok");
  EXPECT_EQ(Try(limits, "a"), "client_images");
  EXPECT_EQ(Try(limits, "b"), "ok");
  limits.Release("a");
  EXPECT_EQ(Try(limits, "a"), "ok");
}

TEST_F(ClientLimitsTest, RemembersSoManyClientsAndNoMore) {
  ClientLimits limits({.images_per_second = 1, .images_in_flight = 10, .clients = 3}, &clock_);
  EXPECT_EQ(Try(limits, "busy"), "ok");
  for (int i = 0; i < 100; ++i) {
    const std::string name = "client" + std::to_string(i);
    EXPECT_EQ(Try(limits, name), "ok");
    limits.Release(name);
    EXPECT_LE(limits.size(), 3);
  }
  // Who came last is remembered, and so is who has an image in flight.
  EXPECT_EQ(Try(limits, "client99"), "client_rate");
  EXPECT_EQ(Try(limits, "busy"), "client_rate");
}

// Keeps what it is given.
class HoldingEngine final : public Engine {
 public:
  void Encode(EncodeJob job, EncodeDone done) override {
    clients.push_back(job.client);
    answers.push_back(std::move(done));
  }
  bool healthy() const override { return true; }
  bool Drain(absl::Time /*deadline*/) override { return true; }

  std::vector<std::string> clients;
  std::vector<EncodeDone> answers;
};

TEST(LimitedEngineTest, CountsAnImageUntilItsAnswer) {
  const FakeClock clock;
  CountingObserver observer;
  const auto held = std::make_shared<HoldingEngine>();
  LimitedEngine engine(
      std::make_shared<ClientLimits>(ClientLimitOptions{.images_in_flight = 1}, &clock), held,
      &observer);
  std::vector<absl::Status> answers;
  const auto encode = [&](const std::string& client) {
    EncodeJob job;
    job.client = client;
    engine.Encode(std::move(job), [&answers](const absl::StatusOr<EncodeResult>& result) {
      answers.push_back(result.status());
    });
  };
  encode("a");
  encode("b");
  encode("a");
  EXPECT_THAT(held->clients, testing::ElementsAre("a", "b"));
  ASSERT_EQ(answers.size(), 1);  // of the second of a
  EXPECT_EQ(answers[0].code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(observer.rejects[static_cast<size_t>(RejectReason::kClientImages)], 1);
  held->answers[0](absl::InternalError("failed"));  // an answer all the same
  encode("a");
  EXPECT_EQ(held->clients.size(), 3);
  EXPECT_EQ(answers.size(), 2);
}

}  // namespace
}  // namespace deepencoder
