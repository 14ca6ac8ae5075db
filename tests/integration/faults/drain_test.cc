// Signals while an image is encoded for as long as a test likes.
#include <gmock/gmock.h>

#include <csignal>
#include <future>

#include "tests/integration/faults/fault_fixture.h"

namespace deepencoder {
namespace {

using testing::HasSubstr;

class DrainTest : public FaultTest {
 protected:
  // Starts a server and an encoding that ends when the rules go.
  std::future<absl::StatusOr<client::Embeddings>> StartEncoding(const std::string& drain_timeout) {
    Start({drain_timeout, "--device-timeout=10m"}, "encode hang");
    EXPECT_TRUE(server().ready()) << server().process().Stderr();
    auto held = caller().EncodeFuture(ReadImage("palette.png"), Tiny(absl::Minutes(10)));
    EXPECT_TRUE(Eventually([&] { return server().Metrics()["deepencoder_in_flight"] == 1; }));
    return held;
  }
  bool Says(const std::string& text) {
    return Eventually([&] { return server().process().Stderr().find(text) != std::string::npos; });
  }
};

TEST_F(DrainTest, SecondSignalExitsAtOnce) {
  const auto held = StartEncoding("--drain-timeout=10m");
  server().process().Signal(SIGTERM);
  ASSERT_TRUE(Says("draining"));
  server().process().Signal(SIGTERM);
  EXPECT_EQ(server().process().Wait(), 128 + SIGTERM);
  EXPECT_THAT(server().process().Stderr(), HasSubstr("second signal"));
  held.wait();  // told of the connection's end
}

TEST_F(DrainTest, DrainThatRunsOutSaysSo) {
  const auto held = StartEncoding("--drain-timeout=0");
  server().process().Signal(SIGINT);
  ASSERT_TRUE(Says("--drain-timeout passed"));
  SetRules("");
  EXPECT_EQ(server().process().Wait(), 1);
  held.wait();  // an answer, if it was quicker than the end of the connection
}

}  // namespace
}  // namespace deepencoder
