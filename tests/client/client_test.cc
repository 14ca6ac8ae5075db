// The client library against the real RPC layer over a PuppetEngine.
#include "client/client.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <map>
#include <set>
#include <thread>

#include "server/engine/retry_hint.h"
#include "tests/server/rpc/rpc_fixture.h"
#include "tests/work_folder.h"

namespace deepencoder::client {
namespace {

using testing::HasSubstr;

std::string Text(const SharedBytes& shared) {
  return {reinterpret_cast<const char*>(shared.bytes.data()), shared.bytes.size()};
}

Image SmallImage(const std::string& bytes = "file") {
  Image image;
  image.encoded = bytes;
  return image;
}

EncodeOptions Tiny() {
  EncodeOptions options;
  options.mode = Mode::kTiny;
  return options;
}

// Retries at once, so that no test waits.
ClientOptions Impatient(int attempts = 3) {
  ClientOptions options;
  options.retry.max_attempts = attempts;
  options.retry.first_delay = absl::Milliseconds(1);
  return options;
}

std::string FileOf(const EncodeJob& job) {
  const auto& bytes = std::get<EncodedFile>(job.image).file.bytes;
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

class ClientTest : public testing::Test {
 protected:
  void SetUp() override {
    server_.Serve();
    auto made = Client::Create(server_.address(), Impatient());
    ASSERT_TRUE(made.ok());
    client_ = *std::move(made);
  }

  RpcServer server_;
  std::unique_ptr<Client> client_;
};

TEST_F(ClientTest, SpreadsCallsOverAllAddresses) {
  RpcServer other;
  other.Serve();
  std::atomic<int> here{0}, there{0};
  const auto counting = [](std::atomic<int>& calls) {
    return [&calls](const EncodeJob& job) {
      ++calls;
      return FilledResult(job);
    };
  };
  server_.engine->Play(counting(here));
  other.engine->Play(counting(there));
  const auto client = Client::Create("ipv4:" + server_.address() + "," + other.address());
  ASSERT_TRUE(client.ok());
  // The first calls may find only one of the two connected.
  while (here == 0 || there == 0) ASSERT_TRUE((*client)->Encode(SmallImage(), Tiny()).ok());
  const int before = here, before_there = there;
  for (int i = 0; i < 4; ++i) ASSERT_TRUE((*client)->Encode(SmallImage(), Tiny()).ok());
  EXPECT_EQ(here, before + 2);
  EXPECT_EQ(there, before_there + 2);
}

TEST_F(ClientTest, EncodesWithAllOptions) {
  EncodeJob seen;
  server_.engine->Play([&seen](const EncodeJob& job) {
    seen = job;
    return FilledResult(job, {2, 2}, 0x3C);
  });
  EncodeOptions options;
  options.mode = Mode::kGundam;
  options.max_tiles = 7;
  options.dtype = DType::kFp16;
  options.alpha = Alpha::kDrop;
  options.gray16 = Gray16::kSaturate;
  options.request_id = "here";
  const auto rows = client_->Encode(SmallImage(), options);
  ASSERT_TRUE(rows.ok()) << rows.status();
  EXPECT_EQ(FileOf(seen), "file");
  EXPECT_EQ(seen.request_id, "here");
  EXPECT_EQ(seen.mode, deepencoder::Mode::kGundam);
  EXPECT_EQ(seen.max_tiles, 7);
  EXPECT_EQ(seen.alpha, AlphaPolicy::kDrop);
  EXPECT_EQ(seen.gray16, Gray16Policy::kSaturate);
  EXPECT_LT(seen.deadline, absl::Now() + absl::Minutes(2));
  EXPECT_EQ(rows->dtype, DType::kFp16);
  EXPECT_EQ(rows->rows, 273 + 20 * 21);
  EXPECT_EQ(rows->width, 1280);
  EXPECT_EQ(rows->data, std::string(size_t{2} * rows->rows * 1280, 0x3C));
  EXPECT_FLOAT_EQ(rows->ToFloats()[0], 1.05859375F);  // 0x3C3C
  EXPECT_EQ(rows->geometry.tile_columns, 2);
  EXPECT_EQ(rows->geometry.tile_side, 640);
  EXPECT_DOUBLE_EQ(rows->timings.compute, 0.004);
}

TEST_F(ClientTest, SendsPixels) {
  EncodeJob seen;
  server_.engine->Play([&seen](const EncodeJob& job) {
    seen = job;
    return FilledResult(job);
  });
  Image image;
  image.width = 1;
  image.height = 2;
  image.rgb = "rgbrgb";
  ASSERT_TRUE(client_->Encode(image, Tiny()).ok());
  const RawPixels& pixels = std::get<RawPixels>(seen.image);
  EXPECT_EQ(pixels.width, 1);
  EXPECT_EQ(pixels.height, 2);
  EXPECT_EQ(Text(pixels.rgb), "rgbrgb");
}

TEST_F(ClientTest, RetriesWhatMayPass) {
  std::atomic<int> calls{0};
  server_.engine->Play([&calls](const EncodeJob& job) -> absl::StatusOr<EncodeResult> {
    EXPECT_EQ(Text(std::get<EncodedFile>(job.image).file), "file");  // at each attempt
    switch (calls++) {
      case 0:
        return absl::UnavailableError("restarting");
      case 1:
        return WithRetryAfter(absl::ResourceExhaustedError("full"), absl::Milliseconds(2));
      default:
        return FilledResult(job);
    }
  });
  EXPECT_TRUE(client_->Encode(SmallImage(), Tiny()).ok());
  EXPECT_EQ(calls, 3);
}

TEST_F(ClientTest, GivesUpAfterItsAttempts) {
  std::atomic<int> calls{0};
  server_.engine->Play([&calls](const EncodeJob&) {
    ++calls;
    return absl::UnavailableError("restarting");
  });
  const auto rows = client_->Encode(SmallImage(), Tiny());
  EXPECT_EQ(rows.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(rows.status().message()), HasSubstr(server_.address()));
  EXPECT_EQ(calls, 3);
}

TEST_F(ClientTest, DoesNotRetryWhatWouldComeAgain) {
  for (const absl::Status& status :
       {absl::InvalidArgumentError("broken"), absl::InternalError("device"),
        absl::ResourceExhaustedError("the image has too many bytes")}) {
    std::atomic<int> calls{0};
    server_.engine->Play([&](const EncodeJob&) {
      ++calls;
      return status;
    });
    EXPECT_EQ(client_->Encode(SmallImage(), Tiny()).status().code(), status.code());
    EXPECT_EQ(calls, 1) << status;
  }
}

TEST_F(ClientTest, DoesNotRetryBeyondTheTimeout) {
  std::atomic<int> calls{0};
  server_.engine->Play([&calls](const EncodeJob&) {
    ++calls;
    return WithRetryAfter(absl::ResourceExhaustedError("full"), absl::Hours(1));
  });
  EXPECT_EQ(client_->Encode(SmallImage(), Tiny()).status().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(calls, 1);
}

TEST_F(ClientTest, DeadlinePasses) {
  EncodeOptions options = Tiny();
  options.timeout = absl::Milliseconds(20);
  // The engine holds it, if it came so far.
  EXPECT_EQ(client_->Encode(SmallImage(), options).status().code(),
            absl::StatusCode::kDeadlineExceeded);
}

TEST_F(ClientTest, ManyCallsAtOnceAndDestructionWaits) {
  server_.engine->Play([](const EncodeJob& job) { return FilledResult(job); });
  std::atomic<int> answered{0};
  constexpr int kCalls = 200;
  for (int i = 0; i < kCalls; ++i) {
    client_->EncodeAsync(SmallImage(), Tiny(), [&answered](const absl::StatusOr<Embeddings>& rows) {
      EXPECT_TRUE(rows.ok()) << rows.status();
      ++answered;
    });
  }
  client_.reset();
  EXPECT_EQ(answered, kCalls);
}

TEST_F(ClientTest, Info) {
  const auto info = client_->Info();
  ASSERT_TRUE(info.ok()) << info.status();
  EXPECT_EQ(info->model, "deepseek-ocr");
}

TEST(ClientWithoutServerTest, SaysWhoDoesNotAnswer) {
  const std::string address = "unix:" + testing::TempDir() + "nobody.sock";
  EXPECT_FALSE(Client::Create("").ok());
  const auto client = Client::Create(address, Impatient());
  ASSERT_TRUE(client.ok());
  const absl::Status connected = (*client)->Connect(absl::Milliseconds(50));
  EXPECT_EQ(connected.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(connected.message()), HasSubstr("nobody.sock"));
  const auto rows = (*client)->Encode(SmallImage(), Tiny());
  EXPECT_EQ(rows.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ((*client)->Info().status().code(), absl::StatusCode::kUnavailable);
  int images = 0;
  std::vector<absl::StatusCode> codes;
  const absl::Status many = (*client)->EncodeMany(
      [&]() -> std::optional<Image> {
        if (++images > 5) return std::nullopt;
        return SmallImage();
      },
      Tiny(), 2,
      [&](const ManyResult& result) { codes.push_back(result.embeddings.status().code()); });
  EXPECT_EQ(many.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(codes, std::vector<absl::StatusCode>(codes.size(), absl::StatusCode::kUnavailable));
}

// ------------------------------------------------------------------ EncodeMany

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

TEST(TokenTest, IsNotSentInTheClear) {
  ClientOptions options;
  options.token = "sesame";
  for (const char* target : {"encoder.example:1", "10.0.0.1:1", "127.0.0.1.example:1",
                             "ipv4:127.0.0.1:1,10.0.0.1:1", "dns:///localhost.example:1"}) {
    EXPECT_EQ(Client::Create(target, options).status().code(), absl::StatusCode::kInvalidArgument)
        << target;
  }
  for (const char* target : {"localhost:1", "127.0.0.1:1", "127.1.2.3:1", "[::1]:1", "unix:/x"}) {
    EXPECT_TRUE(Client::Create(target, options).ok()) << target;
  }
}

// ------------------------------------------------------------------ files and names

TEST(TypesTest, NamesGoBothWays) {
  for (const Mode mode : {Mode::kTiny, Mode::kSmall, Mode::kBase, Mode::kLarge, Mode::kGundam}) {
    EXPECT_EQ(client::ParseMode(Name(mode)), mode);
  }
  for (const DType dtype : {DType::kBf16, DType::kFp16, DType::kFp32}) {
    EXPECT_EQ(client::ParseDType(Name(dtype)), dtype);
  }
  EXPECT_FALSE(client::ParseMode("huge").has_value());
  EXPECT_FALSE(client::ParseDType("int8").has_value());
}

TEST(TypesTest, ReadImageFile) {
  const std::string path = WorkFolder() + "/read_image_file";
  std::ofstream(path) << "bytes";
  EXPECT_EQ(ReadImageFile(path)->encoded, "bytes");
  EXPECT_EQ(ReadImageFile(path + ".none").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(ReadImageFile(testing::TempDir()).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(TypesTest, ToFloatsKnowsEveryType) {
  Embeddings rows;
  rows.dtype = DType::kBf16;
  rows.Own(std::string("\x80\x3f\x00\xc0", 4));
  EXPECT_THAT(rows.ToFloats(), testing::ElementsAre(1.0F, -2.0F));
  rows.dtype = DType::kFp16;
  rows.Own(std::string("\x00\x3c\x01\x00\x00\xfc", 6));  // 1, the least subnormal, -infinity
  EXPECT_THAT(rows.ToFloats(), testing::ElementsAre(1.0F, std::ldexp(1.0F, -24), -HUGE_VALF));
  rows.dtype = DType::kFp32;
  rows.Own(std::string("\x00\x00\x20\x41", 4));
  EXPECT_THAT(rows.ToFloats(), testing::ElementsAre(10.0F));
}

}  // namespace
}  // namespace deepencoder::client
