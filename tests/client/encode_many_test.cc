// EncodeMany against the real RPC layer over a PuppetEngine.
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "client/client.h"
#include "server/engine/retry_hint.h"
#include "tests/client/client_fixture.h"

namespace deepencoder::client {
namespace {

using testing::HasSubstr;

class EncodeManyTest : public ClientTest {
 protected:
  // Images "0", "1", ... ; what came back, by index.
  absl::Status Run(int images, int in_flight, const EncodeOptions& options = Tiny()) {
    int next = 0;
    return client_->EncodeMany(
        [&]() -> std::optional<Image> {
          if (next == images) return std::nullopt;
          return SmallImage(std::to_string(next++));
        },
        options, in_flight,
        [this](const ManyResult& result) {
          EXPECT_TRUE(results_.emplace(result.index, result.embeddings.status()).second);
          if (result.embeddings.ok()) data_[result.index] = result.embeddings->data.substr(0, 1);
        });
  }

  std::map<size_t, absl::Status> results_;
  std::map<size_t, std::string> data_;
};

TEST_F(EncodeManyTest, EveryImageOnceWithItsOwnRows) {
  server_.engine->Play([](const EncodeJob& job) {
    return FilledResult(job, {}, static_cast<char>(std::stoi(FileOf(job))));
  });
  EXPECT_TRUE(Run(100, 8).ok());
  ASSERT_EQ(results_.size(), 100);
  for (int i = 0; i < 100; ++i) {
    EXPECT_TRUE(results_[i].ok());
    EXPECT_EQ(data_[i], std::string(1, static_cast<char>(i)));
  }
}

TEST_F(EncodeManyTest, NoImagesIsNoError) { EXPECT_TRUE(Run(0, 1).ok()); }

TEST_F(EncodeManyTest, BadImagesFailAlone) {
  server_.engine->Play([](const EncodeJob& job) -> absl::StatusOr<EncodeResult> {
    if (std::stoi(FileOf(job)) % 3 == 0) return absl::InvalidArgumentError("broken");
    return FilledResult(job);
  });
  EXPECT_TRUE(Run(30, 4).ok());
  ASSERT_EQ(results_.size(), 30);
  for (const auto& [index, status] : results_) EXPECT_EQ(status.ok(), index % 3 != 0);
}

TEST_F(EncodeManyTest, SendsAgainWhatTheServerHadNoRoomFor) {
  std::atomic<int> calls{0};
  server_.engine->Play([&calls](const EncodeJob& job) -> absl::StatusOr<EncodeResult> {
    if (calls++ % 2 == 0) {
      return WithRetryAfter(absl::ResourceExhaustedError("full"), absl::Milliseconds(1));
    }
    return FilledResult(job);
  });
  EXPECT_TRUE(Run(20, 1).ok());
  ASSERT_EQ(results_.size(), 20);
  for (const auto& [index, status] : results_) EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(calls, 40);
}

TEST_F(EncodeManyTest, HoldsItsBound) {
  std::atomic<int> most{0};
  std::thread answerer([&] {
    for (int i = 0; i < 40; ++i) {
      PuppetEngine::Held job = server_.engine->Take();
      most = std::max<int>(most, server_.engine->seen() - i);
      job.done(FilledResult(job.job));
    }
  });
  EXPECT_TRUE(Run(40, 3).ok());
  answerer.join();
  EXPECT_LE(most, 3);
  EXPECT_EQ(results_.size(), 40);
}

TEST_F(EncodeManyTest, ImageOverTheServersLimitFailsAloneAndUnsent) {
  Serving serving{server_.engine, {}};
  serving.info.mutable_limits()->set_max_image_bytes(1000);
  server_.service.SetServing(std::make_shared<const Serving>(std::move(serving)));
  server_.engine->Play([](const EncodeJob& job) { return FilledResult(job); });
  int next = 0;
  std::vector<absl::Status> results(3);
  const absl::Status status = client_->EncodeMany(
      [&]() -> std::optional<Image> {
        if (next == 3) return std::nullopt;
        return SmallImage(std::string(next++ == 1 ? 1001 : 1000, 'x'));
      },
      Tiny(), 4,
      [&](const ManyResult& result) { results[result.index] = result.embeddings.status(); });
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_TRUE(results[0].ok());
  EXPECT_EQ(results[1].code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(results[1].message()), HasSubstr("limit is 1000"));
  EXPECT_TRUE(results[2].ok());
  EXPECT_EQ(server_.engine->seen(), 2);
}

// The server's limit is not known when the stream begins, and gRPC ends the stream for the image.
TEST(EncodeManyLimitTest, ImageThatEndsTheStreamFailsAlone) {
  RpcServer server;
  server.engine->Play([](const EncodeJob& job) { return FilledResult(job); });
  auto client = *Client::Create(server.address(), Impatient(100));
  int next = 0;
  std::vector<absl::Status> results(5, absl::UnknownError("never answered"));
  const absl::Status status = client->EncodeMany(
      [&]() -> std::optional<Image> {
        if (next == 0) {
          Serving serving{server.engine, DescribeModes(server.rules(), 1000)};
          server.service.SetServing(std::make_shared<const Serving>(std::move(serving)));
        }
        if (next == 5) return std::nullopt;
        return SmallImage(std::string(next++ == 2 ? 9 << 20 : 1000, 'x'));
      },
      Tiny(), 4,
      [&](const ManyResult& result) { results[result.index] = result.embeddings.status(); });
  EXPECT_TRUE(status.ok()) << status;
  for (int i = 0; i < 5; ++i) {
    if (i == 2) continue;
    EXPECT_TRUE(results[i].ok()) << i << ": " << results[i];
  }
  EXPECT_EQ(results[2].code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(results[2].message()), HasSubstr("the server's limit is 1048576"));
}

TEST_F(EncodeManyTest, TimesOutWithoutAnyReply) {
  EncodeOptions options = Tiny();
  options.timeout = absl::Milliseconds(50);
  const absl::Status status = Run(5, 2, options);
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(results_.size(), 2);
}

// Reads nothing of its stream.
class DeafServer final : public v1::VisionEncoder::Service {
 public:
  grpc::Status EncodeImages(grpc::ServerContext* context,
                            grpc::ServerReaderWriter<v1::EncodeImageResponse,
                                                     v1::EncodeImageRequest>* /*stream*/) override {
    cancelled = Eventually([context] { return context->IsCancelled(); });
    return grpc::Status::OK;
  }
  std::atomic<bool> cancelled{false};
};

TEST(EncodeManyDeafTest, TimesOutInTheMiddleOfAnImage) {
  DeafServer service;
  const std::string address =
      "unix:" + testing::TempDir() + "encode_many_test." + std::to_string(getpid()) + ".sock";
  grpc::ServerBuilder builder;
  builder.AddListeningPort(address, grpc::InsecureServerCredentials());
  builder.RegisterService(&service);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  const auto client = *Client::Create(address, Impatient(1));
  EncodeOptions options = Tiny();
  options.timeout = absl::Milliseconds(50);
  bool given = false;
  std::vector<absl::StatusCode> codes;
  const absl::Status status = client->EncodeMany(
      [&given]() -> std::optional<Image> {
        if (std::exchange(given, true)) return std::nullopt;
        return SmallImage(std::string(64 << 20, 'x'));  // more than any buffer on the way takes
      },
      options, 1,
      [&](const ManyResult& result) { codes.push_back(result.embeddings.status().code()); });
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
  EXPECT_THAT(codes, testing::ElementsAre(absl::StatusCode::kDeadlineExceeded));
  server->Shutdown();
  EXPECT_TRUE(service.cancelled);
}

// A pipe that nobody reads for a while.
TEST_F(EncodeManyTest, TheSinksTimeIsNotTheServers) {
  server_.engine->Play([](const EncodeJob& job) { return FilledResult(job); });
  EncodeOptions options = Tiny();
  options.timeout = absl::Seconds(2);
  int next = 0, good = 0;
  const absl::Status status = client_->EncodeMany(
      [&]() -> std::optional<Image> {
        if (next++ == 4) return std::nullopt;
        return SmallImage();
      },
      options, 2,
      [&](const ManyResult& result) {
        if (result.index == 0) absl::SleepFor(2 * options.timeout);
        good += result.embeddings.ok() ? 1 : 0;
      });
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(good, 4);
}

// A source whose second image waits until the first was answered. Whether it was; the status of both.
struct WaitingSource {
  bool answered_meanwhile = false;
  absl::Status first, whole;
};

WaitingSource WaitForTheFirst(Client& client, const EncodeOptions& options) {
  WaitingSource outcome;
  std::atomic<bool> answered{false};
  bool given = false;
  outcome.whole = client.EncodeMany(
      [&]() -> std::optional<Image> {
        if (!std::exchange(given, true)) return SmallImage();
        outcome.answered_meanwhile = Eventually([&] { return answered.load(); });
        return std::nullopt;
      },
      options, 2,
      [&](const ManyResult& result) {
        outcome.first = result.embeddings.status();
        answered = true;
      });
  return outcome;
}

TEST_F(EncodeManyTest, ASourceThatWaitsDoesNotHoldUpRetries) {
  std::atomic<int> calls{0};
  server_.engine->Play([&calls](const EncodeJob& job) -> absl::StatusOr<EncodeResult> {
    if (calls++ == 0) {
      return WithRetryAfter(absl::ResourceExhaustedError("full"), absl::Milliseconds(1));
    }
    return FilledResult(job);
  });
  const WaitingSource outcome = WaitForTheFirst(*client_, Tiny());
  EXPECT_TRUE(outcome.answered_meanwhile);
  EXPECT_TRUE(outcome.first.ok()) << outcome.first;
  EXPECT_TRUE(outcome.whole.ok()) << outcome.whole;
}

TEST_F(EncodeManyTest, ASourceThatWaitsDoesNotHoldUpTheTimeout) {
  EncodeOptions options = Tiny();
  options.timeout = absl::Milliseconds(50);
  const WaitingSource outcome = WaitForTheFirst(*client_, options);
  EXPECT_TRUE(outcome.answered_meanwhile);
  EXPECT_EQ(outcome.first.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(outcome.whole.code(), absl::StatusCode::kDeadlineExceeded);
}

TEST(EncodeManyRestartTest, AServerMayBeAwayWhileTheSourceWaits) {
  const std::string address =
      "unix:" + testing::TempDir() + "encode_many_test." + std::to_string(getpid()) + ".sock";
  std::unique_ptr<RpcServer> server;
  const auto serve = [&] {
    server = std::make_unique<RpcServer>(4, address);
    server->engine->Play([](const EncodeJob& job) { return FilledResult(job); });
    server->Serve();
  };
  serve();
  const auto client = Client::Create(address, Impatient());
  ASSERT_TRUE(client.ok());
  std::atomic<int> answered{0};
  int next = 0;
  const absl::Status status = (*client)->EncodeMany(
      [&]() -> std::optional<Image> {
        if (next == 2) return std::nullopt;
        if (next++ == 1) {
          EXPECT_TRUE(Eventually([&] { return answered == 1; }));
          server->service.Drain();  // else its end would wait for the stream's
          server.reset();
          absl::SleepFor(absl::Milliseconds(200));  // far longer than three attempts take
          serve();
          EXPECT_TRUE(Eventually([&] { return (*client)->Info().ok(); }));  // connected again
        }
        return SmallImage();
      },
      Tiny(), 2, [&](const ManyResult& result) { answered += result.embeddings.ok() ? 1 : 0; });
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(answered, 2);
}

// A rolling restart: the first server drains and goes, another comes to the same address.
TEST(EncodeManyRestartTest, AStreamThatEndsEarlyIsOpenedAgain) {
  const std::string address =
      "unix:" + testing::TempDir() + "client_test." + std::to_string(getpid()) + ".sock";
  auto first = std::make_unique<RpcServer>(4, address);
  first->Serve();
  std::unique_ptr<RpcServer> second;
  std::thread driver([&] {
    for (int i = 0; i < 2; ++i) {
      PuppetEngine::Held held = first->engine->Take();
      held.done(FilledResult(held.job));
    }
    PuppetEngine::Held last = first->engine->Take();
    first->service.Drain();
    last.done(FilledResult(last.job));
    // What the stream had read before the drain, or was about to.
    first->engine->Play([](const EncodeJob& job) { return FilledResult(job); });
    while (first->engine->HasHeld()) {
      PuppetEngine::Held held = first->engine->Take();
      held.done(FilledResult(held.job));
    }
    first.reset();
    second = std::make_unique<RpcServer>(4, address);
    second->engine->Play([](const EncodeJob& job) { return FilledResult(job); });
    second->Serve();
  });
  ClientOptions options;
  options.retry.max_attempts = 200;
  options.retry.max_delay = absl::Milliseconds(100);
  const auto client = Client::Create(address, options);
  ASSERT_TRUE(client.ok());
  int next = 0;
  std::map<size_t, absl::Status> results;
  const absl::Status status = (*client)->EncodeMany(
      [&]() -> std::optional<Image> {
        if (next == 20) return std::nullopt;
        return SmallImage(std::to_string(next++));
      },
      Tiny(), 3,
      [&](const ManyResult& result) {
        EXPECT_TRUE(results.emplace(result.index, result.embeddings.status()).second);
      });
  driver.join();
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(results.size(), 20);
  for (const auto& [index, result] : results) EXPECT_TRUE(result.ok()) << result;
  EXPECT_GT(second->engine->seen(), 0);
}

}  // namespace
}  // namespace deepencoder::client
