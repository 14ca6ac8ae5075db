// The client library against the real RPC layer over a PuppetEngine.
#include "client/client.h"

#include <gmock/gmock.h>

#include <atomic>
#include <fstream>
#include <vector>

#include "server/engine/retry_hint.h"
#include "tests/client/client_fixture.h"
#include "tests/work_folder.h"

namespace deepencoder::client {
namespace {

using testing::HasSubstr;

std::string Text(const SharedBytes& shared) {
  return {reinterpret_cast<const char*>(shared.bytes.data()), shared.bytes.size()};
}

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

// gRPC ends the process over such a header.
TEST_F(ClientTest, WhatNoHeaderCanHaveIsAnError) {
  for (const std::string text : {"\xC3\xA4", "a\n", "a\x7F", "\t"}) {
    EncodeOptions options = Tiny();
    options.request_id = text;
    const absl::Status named = client_->Encode(SmallImage(), options).status();
    EXPECT_EQ(named.code(), absl::StatusCode::kInvalidArgument) << named;
    EXPECT_THAT(std::string(named.message()), HasSubstr("request_id: byte"));
    options = Tiny();
    options.traceparent = text;
    const absl::Status traced = client_->EncodeMany([] { return SmallImage(); }, options, 1,
                                                    [](const ManyResult& /*result*/) {});
    EXPECT_EQ(traced.code(), absl::StatusCode::kInvalidArgument) << traced;
    EXPECT_THAT(std::string(traced.message()), HasSubstr("traceparent: byte"));
  }
  EXPECT_EQ(server_.engine->seen(), 0);
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
