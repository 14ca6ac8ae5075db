#include <gmock/gmock.h>

#include <cstring>
#include <future>
#include <thread>

#include "absl/time/clock.h"
#include "deepencoder/wire/rpc_status.pb.h"
#include "server/engine/retry_hint.h"
#include "server/rpc/message_buffer.h"
#include "tests/server/rpc/rpc_fixture.h"

namespace deepencoder {
namespace {

using testing::HasSubstr;

class EncodeImageTest : public testing::Test {
 protected:
  grpc::Status Call(const v1::EncodeImageRequest& request) {
    context_ = std::make_unique<grpc::ClientContext>();
    response_.Clear();
    return server_.stub->EncodeImage(context_.get(), request, &response_);
  }

  RpcServer server_;
  std::unique_ptr<grpc::ClientContext> context_;
  v1::EncodeImageResponse response_;
};

TEST_F(EncodeImageTest, AnswersWithRowsGeometryAndTimings) {
  server_.Serve();
  EncodeJob seen;
  server_.engine->Play([&seen](const EncodeJob& job) {
    seen = job;
    return FilledResult(job, {3, 2});
  });
  v1::EncodeImageRequest request;
  request.set_id("page 1");
  request.set_encoded("file");
  request.set_mode(v1::MODE_GUNDAM);
  request.set_max_tiles(12);
  request.set_dtype(v1::DTYPE_FP32);
  request.set_gray16(v1::GRAY16_POLICY_SATURATE);
  const grpc::Status status = Call(request);
  ASSERT_TRUE(status.ok()) << status.error_message();

  const auto& file = std::get<EncodedFile>(seen.image).file.bytes;
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(file.data()), file.size()), "file");
  EXPECT_EQ(seen.mode, Mode::kGundam);
  EXPECT_EQ(seen.max_tiles, 12);
  EXPECT_EQ(seen.dtype, DType::kFp32);
  EXPECT_EQ(seen.alpha, AlphaPolicy::kWhite);  // the server's default
  EXPECT_EQ(seen.gray16, Gray16Policy::kSaturate);
  EXPECT_EQ(seen.deadline, absl::InfiniteFuture());

  EXPECT_EQ(response_.id(), "page 1");
  EXPECT_EQ(response_.dtype(), v1::DTYPE_FP32);
  const int local = 10 * 2 * (10 * 3 + 1);
  ASSERT_EQ(response_.shape_size(), 2);
  EXPECT_EQ(response_.shape(0), local + 273);
  EXPECT_EQ(response_.shape(1), 1280);
  EXPECT_EQ(response_.data(), std::string(size_t{4} * (local + 273) * 1280, 7));
  EXPECT_EQ(response_.geometry().tile_columns(), 3);
  EXPECT_EQ(response_.geometry().tile_rows(), 2);
  EXPECT_EQ(response_.geometry().tile_side(), 640);
  EXPECT_EQ(response_.geometry().base_side(), 1024);
  EXPECT_EQ(response_.geometry().local_rows(), local);
  EXPECT_EQ(response_.geometry().global_rows(), 272);
  EXPECT_EQ(response_.geometry().image_width(), 300);
  EXPECT_DOUBLE_EQ(response_.timings().compute(), 0.004);
  EXPECT_DOUBLE_EQ(response_.timings().total(), 0.015);
  EXPECT_FALSE(response_.has_error());
}

TEST_F(EncodeImageTest, WhatIsNotSaidIsTheServersDefault) {
  server_.Serve();
  EncodeJob seen;
  server_.engine->Play([&seen](const EncodeJob& job) {
    seen = job;
    return FilledResult(job);
  });
  v1::EncodeImageRequest request;
  request.mutable_raw()->set_width(2);
  request.mutable_raw()->set_height(1);
  request.mutable_raw()->set_rgb("rgbRGB");
  ASSERT_TRUE(Call(request).ok());
  EXPECT_EQ(seen.mode, Mode::kGundam);
  EXPECT_EQ(seen.max_tiles, 9);
  EXPECT_EQ(seen.dtype, DType::kBf16);
  EXPECT_EQ(std::get<RawPixels>(seen.image).width, 2);
  EXPECT_EQ(std::get<RawPixels>(seen.image).rgb.bytes.size(), 6);
  EXPECT_EQ(response_.geometry().tile_side(), 0);
  EXPECT_EQ(response_.geometry().local_rows(), 0);
}

TEST_F(EncodeImageTest, RefusesBadRequestsWithAReason) {
  server_.Serve();
  struct Case {
    std::function<void(v1::EncodeImageRequest&)> change;
    grpc::StatusCode code;
    std::string text;
  };
  const std::vector<Case> cases = {
      {[](auto& r) { r.clear_image(); }, grpc::INVALID_ARGUMENT, "has no image"},
      {[](auto& r) { r.set_encoded(""); }, grpc::INVALID_ARGUMENT, "empty"},
      {[](auto& r) { r.set_mode(static_cast<v1::Mode>(77)); }, grpc::INVALID_ARGUMENT, "mode 77"},
      {[](auto& r) { r.set_mode(v1::MODE_LARGE); }, grpc::INVALID_ARGUMENT, "served: tiny, small"},
      {[](auto& r) { r.set_dtype(static_cast<v1::DType>(9)); }, grpc::INVALID_ARGUMENT, "dtype 9"},
      {[](auto& r) { r.set_alpha(static_cast<v1::AlphaPolicy>(9)); }, grpc::INVALID_ARGUMENT,
       "alpha policy 9"},
      {[](auto& r) { r.set_gray16(static_cast<v1::Gray16Policy>(9)); }, grpc::INVALID_ARGUMENT,
       "gray16 policy 9"},
      {[](auto& r) { r.set_max_tiles(3); }, grpc::INVALID_ARGUMENT, "4 to 32"},
      {[](auto& r) { r.set_max_tiles(33); }, grpc::INVALID_ARGUMENT, "4 to 32"},
      {[](auto& r) { r.set_id(std::string(257, 'x')); }, grpc::INVALID_ARGUMENT, "limit is 256"},
      {[](auto& r) { r.mutable_raw()->set_rgb("rgb"); }, grpc::INVALID_ARGUMENT, "0 x 0"},
      {[](auto& r) {
         r.mutable_raw()->set_width(2);
         r.mutable_raw()->set_height(2);
         r.mutable_raw()->set_rgb("rgb");
       },
       grpc::INVALID_ARGUMENT, "it has 3"},
      {[](auto& r) { r.set_encoded(std::string((1 << 20) + 1, 'x')); }, grpc::RESOURCE_EXHAUSTED,
       "the limit is 1048576"},
  };
  for (const Case& bad : cases) {
    v1::EncodeImageRequest request = SmallRequest();
    bad.change(request);
    const grpc::Status status = Call(request);
    EXPECT_EQ(status.error_code(), bad.code) << bad.text;
    EXPECT_THAT(status.error_message(), HasSubstr(bad.text));
  }
  EXPECT_EQ(server_.engine->seen(), 0);
  // A call's end is counted just after its reply.
  EXPECT_TRUE(Eventually([&] {
    return server_.Metric("deepencoder_requests_total", {{"code", "INVALID_ARGUMENT"}}) ==
           static_cast<double>(cases.size() - 1);
  }));
}

TEST_F(EncodeImageTest, MessageFarOverTheLimitIsRefused) {
  server_.Serve();
  v1::EncodeImageRequest request = SmallRequest();
  request.set_encoded(std::string(3 << 20, 'x'));
  EXPECT_EQ(Call(request).error_code(), grpc::RESOURCE_EXHAUSTED);
  server_.engine->Play([](const EncodeJob& job) { return FilledResult(job); });
  EXPECT_TRUE(Call(SmallRequest()).ok());
}

TEST_F(EncodeImageTest, BytesThatAreNoMessageAreRefused) {
  server_.Serve();
  ExpectRefusesNoMessage(server_.channel, "/deepencoder.v1.VisionEncoder/EncodeImage",
                         "EncodeImageRequest");
}

TEST_F(EncodeImageTest, FieldsBeyondTheLimitAreRefused) {
  server_.Serve();
  std::string bytes = SmallRequest().SerializeAsString();
  for (int i = 0; i < 100'000; ++i) bytes += "\x7B\x7C";  // empty groups that nobody knows
  const grpc::Status status =
      CallWithBytes(server_.channel, "/deepencoder.v1.VisionEncoder/EncodeImage", bytes);
  EXPECT_EQ(status.error_code(), grpc::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("more than 65536 fields"));
  EXPECT_EQ(server_.engine->seen(), 0);
}

TEST_F(EncodeImageTest, PassesTheEnginesStatusAndRetryHint) {
  server_.Serve();
  server_.engine->Play([](const EncodeJob&) {
    return WithRetryAfter(absl::ResourceExhaustedError("full: 1024 images"),
                          absl::Milliseconds(1250));
  });
  const grpc::Status status = Call(SmallRequest());
  EXPECT_EQ(status.error_code(), grpc::RESOURCE_EXHAUSTED);
  EXPECT_EQ(status.error_message(), "full: 1024 images");
  wire::RpcStatus details;
  ASSERT_TRUE(details.ParseFromString(status.error_details()));
  EXPECT_EQ(details.code(), grpc::RESOURCE_EXHAUSTED);
  EXPECT_EQ(details.message(), "full: 1024 images");
  ASSERT_EQ(details.details_size(), 1);
  EXPECT_EQ(details.details(0).type_url(), "type.googleapis.com/google.rpc.RetryInfo");
  wire::RetryInfo retry;
  ASSERT_TRUE(retry.ParseFromString(details.details(0).value()));
  EXPECT_EQ(retry.retry_delay().seconds(), 1);
  EXPECT_EQ(retry.retry_delay().nanos(), 250'000'000);

  server_.engine->Play([](const EncodeJob&) { return absl::InternalError("CUDA error 700"); });
  EXPECT_EQ(Call(SmallRequest()).error_code(), grpc::INTERNAL);
  EXPECT_TRUE(context_->GetServerTrailingMetadata().contains("x-request-id"));
}

TEST_F(EncodeImageTest, ErrorTextsAreAsciiWhateverTheFileHeld) {
  server_.Serve();
  server_.engine->Play([](const EncodeJob&) {
    return absl::InvalidArgumentError(std::string("bad chunk '\xff\x00\n'", 15) +
                                      std::string(5000, 'x'));
  });
  const grpc::Status status = Call(SmallRequest());
  EXPECT_EQ(status.error_code(), grpc::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), testing::StartsWith("bad chunk '???"));
  EXPECT_EQ(status.error_message().size(), 1024);
}

TEST_F(EncodeImageTest, DeadlineReachesTheJob) {
  server_.Serve();
  absl::Time seen;
  server_.engine->Play([&seen](const EncodeJob& job) {
    seen = job.deadline;
    return FilledResult(job);
  });
  grpc::ClientContext context;
  const absl::Time deadline = absl::Now() + absl::Hours(1);
  context.set_deadline(absl::ToChronoTime(deadline));
  ASSERT_TRUE(server_.stub->EncodeImage(&context, SmallRequest(), &response_).ok());
  // The wire carries the time that is left, not a clock's.
  EXPECT_LT(absl::AbsDuration(seen - deadline), absl::Minutes(1));
}

TEST_F(EncodeImageTest, CancellationReachesTheJob) {
  server_.Serve();
  grpc::ClientContext context;
  std::promise<grpc::Status> promise;
  const v1::EncodeImageRequest request = SmallRequest();
  server_.stub->async()->EncodeImage(
      &context, &request, &response_,
      [&promise](const grpc::Status& status) { promise.set_value(status); });
  PuppetEngine::Held held = server_.engine->Take();
  ASSERT_NE(held.job.cancel, nullptr);
  EXPECT_FALSE(held.job.cancel->cancelled());
  context.TryCancel();
  EXPECT_EQ(promise.get_future().get().error_code(), grpc::CANCELLED);
  EXPECT_TRUE(Eventually([&] { return held.job.cancel->cancelled(); }));
  EXPECT_EQ(server_.Metric("deepencoder_calls_active"), 1);
  held.done(absl::CancelledError("nobody waits"));
  EXPECT_TRUE(Eventually([&] { return server_.Metric("deepencoder_calls_active") == 0; }));
  EXPECT_EQ(server_.Metric("deepencoder_requests_total", {{"code", "CANCELLED"}}), 1);
}

TEST_F(EncodeImageTest, RequestIdIsTheClientsOrMade) {
  server_.Serve();
  std::vector<std::string> seen;
  server_.engine->Play([&seen](const EncodeJob& job) {
    seen.push_back(job.request_id);
    return FilledResult(job);
  });
  const auto id_of_call = [&](const std::string& sent) {
    grpc::ClientContext context;
    if (!sent.empty()) context.AddMetadata("x-request-id", sent);
    EXPECT_TRUE(server_.stub->EncodeImage(&context, SmallRequest(), &response_).ok());
    const auto& trailing = context.GetServerTrailingMetadata();
    const auto found = trailing.find("x-request-id");
    EXPECT_NE(found, trailing.end());
    return found == trailing.end() ? "" : std::string(found->second.data(), found->second.size());
  };
  EXPECT_EQ(id_of_call("trace-42"), "trace-42");
  const std::string made = id_of_call("");
  EXPECT_THAT(made, testing::MatchesRegex("[0-9a-f]{16}"));
  EXPECT_THAT(id_of_call("has a blank"), testing::MatchesRegex("[0-9a-f]{16}"));
  EXPECT_NE(id_of_call(""), made);
  EXPECT_EQ(seen.front(), "trace-42");
  EXPECT_EQ(seen[1], made);
}

TEST_F(EncodeImageTest, LogsIdsAndNeverPayloads) {
  server_.Serve();
  server_.engine->Play([](const EncodeJob& job) { return FilledResult(job); });
  v1::EncodeImageRequest request = SmallRequest("page-7");
  request.set_encoded("SECRETPAYLOAD");
  ASSERT_TRUE(Call(request).ok());
  const MutexLock lock(server_.lines_mutex);
  ASSERT_EQ(server_.lines.size(), 1);
  EXPECT_THAT(server_.lines[0], HasSubstr("\"image_id\":\"page-7\""));
  EXPECT_THAT(server_.lines[0], HasSubstr("\"mode\":\"tiny\""));
  EXPECT_THAT(server_.lines[0], testing::Not(HasSubstr("SECRET")));
}

TEST_F(EncodeImageTest, UnavailableWhileStartingAndDraining) {
  grpc::Status status = Call(SmallRequest());
  EXPECT_EQ(status.error_code(), grpc::UNAVAILABLE);
  EXPECT_THAT(status.error_message(), HasSubstr("starting"));
  server_.Serve();
  server_.service.Drain();
  status = Call(SmallRequest());
  EXPECT_EQ(status.error_code(), grpc::UNAVAILABLE);
  EXPECT_THAT(status.error_message(), HasSubstr("draining"));
}

TEST_F(EncodeImageTest, GetModelInfo) {
  server_.Serve();
  grpc::ClientContext context;
  v1::ModelInfo info;
  ASSERT_TRUE(server_.stub->GetModelInfo(&context, {}, &info).ok());
  EXPECT_EQ(info.model(), "deepseek-ocr");
  // A call is counted just after its reply.
  EXPECT_TRUE(Eventually([&] {
    return server_.Metric("deepencoder_requests_total", {{"method", "GetModelInfo"}}) == 1;
  }));
}

TEST(MessageBufferTest, DataIsSentFromWhereItLies) {
  EncodeJob job;
  job.mode = Mode::kTiny;
  EncodeResult result = FilledResult(job);
  const std::byte* data = result.data.get();
  const std::weak_ptr<const std::byte[]> alive = result.data;
  grpc::ByteBuffer buffer = SerializeResponse(v1::EncodeImageResponse(), result);
  std::vector<grpc::Slice> slices;
  ASSERT_TRUE(buffer.Dump(&slices).ok());
  EXPECT_EQ(reinterpret_cast<const std::byte*>(slices.back().begin()), data);
  // The buffer alone keeps the data.
  result.data.reset();
  EXPECT_FALSE(alive.expired());
  slices.clear();
  buffer.Clear();
  EXPECT_TRUE(alive.expired());
}

TEST(MessageBufferTest, DataIsAlignedInTheMessage) {
  EncodeJob job;
  job.mode = Mode::kTiny;
  const EncodeResult result = FilledResult(job);
  for (size_t length = 0; length < 32; ++length) {  // of the id, which moves what follows
    v1::EncodeImageResponse response;
    response.set_id(std::string(length, 'i'));
    std::vector<grpc::Slice> slices;
    ASSERT_TRUE(SerializeResponse(response, result).Dump(&slices).ok());
    ASSERT_EQ(slices.size(), 2u);
    EXPECT_EQ(slices[0].size() % 16, 0u) << length;
    v1::EncodeImageResponse parsed;
    const std::string head(reinterpret_cast<const char*>(slices[0].begin()), slices[0].size());
    const std::string data(reinterpret_cast<const char*>(slices[1].begin()), slices[1].size());
    ASSERT_TRUE(parsed.ParseFromString(head + data)) << length;
    EXPECT_EQ(parsed.id(), response.id());
    EXPECT_EQ(parsed.data(), data);
  }
}

TEST(SmallMessageTest, NoMethodWithoutAnImageParsesALongMessage) {
  RpcServer server(1, "127.0.0.1:0", nullptr, true);
  server.Serve();
  ExpectRefusesLongMessages(server.channel, "deepencoder.v1.VisionEncoder",
                            {"EncodeImage", "EncodeImages"});
  ExpectRefusesLongMessages(server.channel, "deepencoder.v1.SharedMemory");
  ExpectRefusesLongMessages(server.channel, "grpc.health.v1.Health");
  // They are counted as any other refusal.
  EXPECT_TRUE(Eventually([&] {
    return server.Metric("deepencoder_requests_total", {{"code", "RESOURCE_EXHAUSTED"}}) == 3;
  }));
}

TEST(MessageBufferTest, CachedResultCanBeSentManyTimesAtOnce) {
  RpcServer server;
  server.Serve();
  EncodeJob job;
  job.mode = Mode::kTiny;
  const EncodeResult shared = FilledResult(job, {}, 'z');
  server.engine->Play([&shared](const EncodeJob&) { return shared; });
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 20; ++i) {
        grpc::ClientContext context;
        v1::EncodeImageResponse response;
        ASSERT_TRUE(server.stub->EncodeImage(&context, SmallRequest(), &response).ok());
        ASSERT_EQ(response.data().size(), shared.bytes);
        ASSERT_EQ(std::memcmp(response.data().data(), shared.data.get(), shared.bytes), 0);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace deepencoder
