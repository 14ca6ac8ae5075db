// Starting and stopping the real server.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/grpcpp.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <future>

#include "absl/time/clock.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "tests/integration/server_fixture.h"

namespace deepencoder {
namespace {

using testing::HasSubstr;

// One small mode, so that a start takes little.
const std::vector<std::string> kQuick = {"--modes=tiny,gundam", "--no-warm-up"};

std::vector<std::string> Quick(std::vector<std::string> more) {
  more.insert(more.begin(), kQuick.begin(), kQuick.end());
  return more;
}

client::EncodeOptions In(client::Mode mode) {
  client::EncodeOptions options;
  options.mode = mode;
  options.timeout = absl::Minutes(10);
  return options;
}

// Starts an encoding and waits until the server has accepted it, or has done it before that was seen.
std::future<absl::StatusOr<client::Embeddings>> StartEncoding(RunningServer& server,
                                                              client::Client& client) {
  auto future = client.EncodeFuture(ReadImage("wide.jpg"), In(client::Mode::kGundam));
  EXPECT_TRUE(Eventually([&] {
    return server.Metrics()["deepencoder_in_flight"] == 1 ||
           future.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
  }));
  return future;
}

TEST(LifecycleTest, DrainFinishesWhatWasAccepted) {
  RunningServer server("drain", Quick({"--drain-timeout=10m"}));
  ASSERT_TRUE(server.ready()) << server.process().Stderr();
  const auto client = server.NewClient();
  const auto health = grpc::health::v1::Health::NewStub(
      grpc::CreateChannel(server.address("grpc"), grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  const auto watch = health->Watch(&context, {});
  grpc::health::v1::HealthCheckResponse response;
  ASSERT_TRUE(watch->Read(&response));
  EXPECT_EQ(response.status(), grpc::health::v1::HealthCheckResponse::SERVING);

  auto accepted = StartEncoding(server, *client);
  server.process().Signal(SIGTERM);
  ASSERT_TRUE(watch->Read(&response));
  EXPECT_EQ(response.status(), grpc::health::v1::HealthCheckResponse::NOT_SERVING);
  // Health turns first, so one call or another may still be taken.
  EXPECT_TRUE(Eventually([&] {
    const auto late = client->Encode(ReadImage("palette.png"), In(client::Mode::kTiny));
    return late.status().code() == absl::StatusCode::kUnavailable;
  }));
  const auto rows = accepted.get();
  EXPECT_TRUE(rows.ok()) << rows.status();
  EXPECT_EQ(server.process().Wait(), 0) << server.process().Stderr();
  EXPECT_FALSE(watch->Read(&response));
  watch->Finish();
}

TEST(LifecycleTest, IdleServerStopsWithOpenStreams) {
  RunningServer server("idle", Quick({"--log-format=json"}));
  ASSERT_TRUE(server.ready()) << server.process().Stderr();
  const auto health = grpc::health::v1::Health::NewStub(
      grpc::CreateChannel(server.address("unix"), grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  const auto watch = health->Watch(&context, {});
  grpc::health::v1::HealthCheckResponse response;
  ASSERT_TRUE(watch->Read(&response));
  server.process().Signal(SIGTERM);
  EXPECT_EQ(server.process().Wait(), 0);
  while (watch->Read(&response)) {
  }
  watch->Finish();
  EXPECT_THAT(server.process().Stderr(), HasSubstr("\"message\":\"stopped\""));
}

// A server that has said SERVING, and waits in its start until its ready file's draft is read.
class HeldStart {
 public:
  // `ready_is_folder`: so that the ready file cannot be written in the end.
  HeldStart(const std::string& name, bool ready_is_folder)
      : prefix_(WorkFolder() + "/" + name), draft_(prefix_ + ".ready.new") {
    if (ready_is_folder) std::filesystem::create_directory(prefix_ + ".ready");
    EXPECT_EQ(mkfifo(draft_.c_str(), 0600), 0);
    process_ = std::make_unique<Process>(
        DEEPENCODER_SERVER_PROGRAM,
        Quick({"--model=" + MiniCheckpoint(), "--device=cpu", "--listen=unix:" + prefix_ + ".sock",
               "--metrics-listen=", "--ready-file=" + prefix_ + ".ready"}),
        prefix_);
    health_ = grpc::health::v1::Health::NewStub(
        grpc::CreateChannel("unix:" + prefix_ + ".sock", grpc::InsecureChannelCredentials()));
    EXPECT_TRUE(Eventually([&] { return std::filesystem::exists(prefix_ + ".sock"); }));
    context_.set_wait_for_ready(true);
    watch_ = health_->Watch(&context_, {});
    grpc::health::v1::HealthCheckResponse response;
    while (response.status() != grpc::health::v1::HealthCheckResponse::SERVING &&
           watch_->Read(&response)) {
    }
    EXPECT_EQ(response.status(), grpc::health::v1::HealthCheckResponse::SERVING);
  }
  ~HeldStart() {
    context_.TryCancel();
    watch_->Finish();
  }

  void Release() {
    const int draft = open(draft_.c_str(), O_RDONLY | O_NONBLOCK);
    char text[256];
    EXPECT_TRUE(
        Eventually([&] { return read(draft, text, sizeof(text)) > 0 || !process_->running(); }));
    close(draft);
  }
  Process& process() { return *process_; }

 private:
  const std::string prefix_, draft_;
  std::unique_ptr<Process> process_;
  std::unique_ptr<grpc::health::v1::Health::Stub> health_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReader<grpc::health::v1::HealthCheckResponse>> watch_;  // stays open
};

TEST(LifecycleTest, AReadyFileOfAnEarlierRunIsRemovedAtTheStart) {
  const std::string prefix = WorkFolder() + "/stale_ready", ready = prefix + ".ready";
  std::ofstream(ready) << "grpc=127.0.0.1:1\n";
  Process process(
      DEEPENCODER_SERVER_PROGRAM,
      Quick({"--model=/nowhere/at/all", "--device=cpu", "--listen=unix:" + prefix + ".sock",
             "--metrics-listen=", "--ready-file=" + ready}),
      prefix);
  EXPECT_EQ(process.Wait(), 1);
  EXPECT_FALSE(std::filesystem::exists(ready));
}

TEST(LifecycleTest, AFailedStartEndsTheCallsThatAreOpen) {
  HeldStart start("failed_start", true);
  start.Release();
  EXPECT_TRUE(Eventually([&] { return !start.process().running(); }));
  EXPECT_EQ(start.process().Wait(), 1);
  EXPECT_THAT(start.process().Stderr(), HasSubstr("--ready-file: cannot write"));
}

TEST(LifecycleTest, AStopAsSoonAsItServesDrains) {
  HeldStart start("early_stop", false);
  start.process().Signal(SIGTERM);
  start.Release();
  EXPECT_EQ(start.process().Wait(), 0);
  EXPECT_THAT(start.process().Stderr(), HasSubstr("draining"));
  EXPECT_THAT(start.process().Stderr(), HasSubstr("stopped"));
}

TEST(LifecycleTest, WrongOptionsExitWithTwo) {
  const auto run = [](const std::vector<std::string>& args) {
    return RunProgram(DEEPENCODER_SERVER_PROGRAM, args, WorkFolder() + "/wrong");
  };
  Outcome outcome = run({});
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.err, HasSubstr("--model=DIR is required"));
  outcome = run({"--model=x", "--slots=many"});
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.err, HasSubstr("--slots: 'many'"));
  outcome = run({"--help"});
  EXPECT_EQ(outcome.status, 0);
  EXPECT_THAT(outcome.out, HasSubstr("--drain-timeout"));
  outcome = run({"--version"});
  EXPECT_EQ(outcome.status, 0);
  EXPECT_THAT(outcome.out, testing::StartsWith("deepencoder-server "));
  outcome = run({"--dump-metrics-docs"});
  EXPECT_EQ(outcome.status, 0);
  EXPECT_THAT(outcome.out, HasSubstr("`deepencoder_requests_total`"));
}

TEST(LifecycleTest, WhatCannotStartSaysWhy) {
  RunningServer missing("missing", {"--model=/no/such/folder"});
  EXPECT_FALSE(missing.ready());
  EXPECT_EQ(missing.process().Wait(), 1);
  EXPECT_THAT(missing.process().Stderr(), HasSubstr("/no/such/folder"));

  RunningServer fp16("fp16", {"--compute-dtype=fp16"});
  EXPECT_EQ(fp16.process().Wait(), 1);
  EXPECT_THAT(fp16.process().Stderr(), HasSubstr("--compute-dtype"));

  RunningServer first("first", kQuick);
  ASSERT_TRUE(first.ready()) << first.process().Stderr();
  RunningServer grpc("grpc_in_use", {"--listen=" + first.address("grpc")});
  EXPECT_EQ(grpc.process().Wait(), 1);
  EXPECT_THAT(grpc.process().Stderr(), HasSubstr("--listen: cannot listen on"));
  RunningServer metrics("metrics_in_use", {"--metrics-listen=" + first.address("metrics")});
  EXPECT_EQ(metrics.process().Wait(), 1);
  EXPECT_THAT(metrics.process().Stderr(), HasSubstr("--metrics-listen: cannot listen on"));
}

}  // namespace
}  // namespace deepencoder
