// Too many calls, and calls that are not ended or whose replies are not taken: the server does its work beside them.
#include <gmock/gmock.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/grpcpp.h>

#include <deque>
#include <future>
#include <optional>

#include "inference/grpc_service.grpc.pb.h"
#include "tests/integration/pressure/pressure_fixture.h"

namespace deepencoder {
namespace {

using testing::HasSubstr;

using Stream = grpc::ClientReaderWriter<v1::EncodeImageRequest, v1::EncodeImageResponse>;

// A stream that has been answered, and so is known to the server, and stays open.
class OpenStream {
 public:
  explicit OpenStream(v1::VisionEncoder::Stub* stub) : stream_(stub->EncodeImages(&context_)) {
    v1::EncodeImageResponse response;
    EXPECT_TRUE(stream_->Write(RequestOf("palette.png")) && stream_->Read(&response));
    EXPECT_FALSE(response.has_error()) << response.error().message();
  }
  grpc::Status End() {
    stream_->WritesDone();
    return stream_->Finish();
  }

 private:
  grpc::ClientContext context_;
  std::unique_ptr<Stream> stream_;
};

TEST(PressureTest, SilentStreamsStarveNobody) {
  RunningServer server("silent_streams", Quick({"--max-requests-in-flight=2"}));
  ASSERT_TRUE(server.ready()) << server.process().Stderr();
  const auto stub = StubOf(server);
  std::deque<OpenStream> streams;
  for (int i = 0; i < 8; ++i) streams.emplace_back(stub.get());
  EXPECT_EQ(server.Metrics().at("deepencoder_calls_active{method=\"EncodeImages\"}"), 8);
  EXPECT_TRUE(Works(server).ok()) << Works(server);
  for (OpenStream& stream : streams) EXPECT_TRUE(stream.End().ok());
}

// A stream with work for long, which is given up in the end.
class BusyStream {
 public:
  static constexpr int kImages = 24;

  explicit BusyStream(v1::VisionEncoder::Stub* stub) : stream_(stub->EncodeImages(&context_)) {
    for (int i = 0; i < kImages; ++i) {
      EXPECT_TRUE(stream_->Write(RequestOf("page_rgb.jpg", v1::MODE_BASE)));
    }
  }
  ~BusyStream() {
    context_.TryCancel();
    v1::EncodeImageResponse response;
    while (stream_->Read(&response)) {
    }
    stream_->Finish();
  }

 private:
  grpc::ClientContext context_;
  std::unique_ptr<Stream> stream_;
};

TEST(PressureTest, CallsBeyondTheLimitAreTurnedAway) {
  // One view at a time, so that who is given up is soon gone.
  RunningServer server("calls", Quick({"--max-requests-in-flight=2", "--batch-buckets=1"}));
  ASSERT_TRUE(server.ready()) << server.process().Stderr();
  const auto stub = StubOf(server);
  std::optional<BusyStream> first(stub.get()), second(stub.get());
  // Of both streams.
  EXPECT_TRUE(Eventually(
      [&] { return server.Metrics().at("deepencoder_in_flight") > BusyStream::kImages; }));

  const auto expect_full = [](const grpc::Status& status) {
    EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
    EXPECT_THAT(status.error_message(), HasSubstr("limit: 2 requests"));
    EXPECT_FALSE(status.error_details().empty());  // when to come back
  };
  {
    grpc::ClientContext context;
    v1::EncodeImageResponse response;
    expect_full(stub->EncodeImage(&context, RequestOf("palette.png"), &response));
  }
  {
    grpc::ClientContext context;
    const auto stream = stub->EncodeImages(&context);
    v1::EncodeImageResponse response;
    EXPECT_TRUE(stream->Write(RequestOf("palette.png")) && stream->Read(&response));
    EXPECT_EQ(response.error().code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
    EXPECT_THAT(response.error().message(), HasSubstr("limit: 2 requests"));
    EXPECT_GT(response.error().retry_after(), 0);
    stream->WritesDone();
    EXPECT_TRUE(stream->Finish().ok());
  }
  {
    grpc::ClientContext context;
    inference::ModelInferResponse response;
    const auto kserve = inference::GRPCInferenceService::NewStub(
        grpc::CreateChannel(server.address("grpc"), grpc::InsecureChannelCredentials()));
    expect_full(kserve->ModelInfer(&context, {}, &response));
  }
  EXPECT_EQ(server.Metrics().at("deepencoder_rejected_total{reason=\"requests\"}"), 3);
  {
    grpc::ClientContext context;  // does not encode
    v1::ModelInfo info;
    EXPECT_TRUE(stub->GetModelInfo(&context, {}, &info).ok());
  }
  first.reset();
  EXPECT_TRUE(Eventually([&] { return Works(server).ok(); }));  // beside the second
}

TEST(PressureTest, RepliesThatAreNotTakenAreGivenUp) {
  RunningServer server("stalled", Quick({"--reply-timeout=1s", "--stream-window=4"}));
  ASSERT_TRUE(server.ready()) << server.process().Stderr();
  const auto stub = StubOf(server);
  grpc::ClientContext context;
  const auto stream = stub->EncodeImages(&context);
  // Never read: replies of 1.4 MB in fp32, of which gRPC takes a window's worth.
  v1::EncodeImageRequest request = RequestOf("palette.png", v1::MODE_BASE);
  request.set_dtype(v1::DTYPE_FP32);
  for (int i = 0; i < 4; ++i) stream->Write(request);
  EXPECT_TRUE(
      Eventually([&] { return server.Metrics()["deepencoder_stalled_replies_total"] == 1; }));
  v1::EncodeImageResponse response;
  while (stream->Read(&response)) {
  }
  EXPECT_FALSE(stream->Finish().ok());
  EXPECT_TRUE(Eventually(
      [&] { return server.Metrics()["deepencoder_calls_active{method=\"EncodeImages\"}"] == 0; }));
  EXPECT_THAT(server.process().Stderr(), HasSubstr("bound=--reply-timeout"));
  EXPECT_TRUE(Eventually([&] { return Works(server).ok(); }));  // whose reply has a second, too
}

TEST(PressureTest, ARequestThatIsNeverEndedGoesWithItsConnection) {
  RunningServer server("unsent",
                       Quick({"--max-connection-age=1s", "--max-connection-age-grace=1s"}));
  ASSERT_TRUE(server.ready()) << server.process().Stderr();
  const auto stub = StubOf(server);
  const v1::EncodeImageRequest request = RequestOf("palette.png");
  grpc::ClientContext context;
  const auto stream = stub->EncodeImages(&context);
  stream->Write(request);  // fails if the connection's time is over already
  v1::EncodeImageResponse response;
  while (stream->Read(&response)) {  // no WritesDone: only the server can end this
  }
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_TRUE(Eventually(
      [&] { return server.Metrics()["deepencoder_calls_active{method=\"EncodeImages\"}"] == 0; }));
  EXPECT_TRUE(Eventually([&] {
    grpc::ClientContext next;  // the same channel, over another connection
    next.set_wait_for_ready(true);
    v1::ModelInfo info;
    return stub->GetModelInfo(&next, {}, &info).ok();
  }));
}

TEST(PressureTest, CallsBeyondTheStreamsOfAConnectionWait) {
  RunningServer server("streams", Quick({"--max-streams=2"}));
  ASSERT_TRUE(server.ready()) << server.process().Stderr();
  const auto client = server.NewClient();
  std::vector<std::future<absl::StatusOr<client::Embeddings>>> answers;
  for (int i = 0; i < 8; ++i) {
    answers.push_back(client->EncodeFuture(ReadImage("palette.png"), Tiny()));
  }
  for (auto& answer : answers) EXPECT_TRUE(answer.get().ok());
}

}  // namespace
}  // namespace deepencoder
