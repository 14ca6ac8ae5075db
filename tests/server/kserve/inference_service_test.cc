#include "server/kserve/inference_service.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "deepencoder/wire/rpc_status.pb.h"
#include "server/engine/retry_hint.h"
#include "server/rpc/translate.h"
#include "tests/server/kserve/infer_messages.h"
#include "tests/server/rpc/rpc_fixture.h"

namespace deepencoder::kserve {
namespace {

using inference::GRPCInferenceService;
using inference::ModelInferRequest;
using inference::ModelInferResponse;
using testing::ElementsAre;
using testing::HasSubstr;

// Says that it has lost its device.
class BrokenEngine final : public Engine {
 public:
  void Encode(EncodeJob /*job*/, EncodeDone done) override {
    done(absl::UnavailableError("no device"));
  }
  bool healthy() const override { return false; }
  bool Drain(absl::Time /*deadline*/) override { return true; }
};

class InferenceServiceTest : public testing::Test {
 protected:
  InferenceServiceTest() {
    auto started = GrpcServer::Start({.listen = {"127.0.0.1:0"}}, {&service_});
    EXPECT_TRUE(started.ok()) << started.status();
    server_ = *std::move(started);
    grpc::ChannelArguments arguments;
    arguments.SetMaxReceiveMessageSize(-1);
    channel_ = grpc::CreateCustomChannel(server_->addresses().front(),
                                         grpc::InsecureChannelCredentials(), arguments);
    stub_ = GRPCInferenceService::NewStub(channel_);
  }
  ~InferenceServiceTest() override { server_->Shutdown(absl::InfinitePast()); }

  void Serve(std::shared_ptr<Engine> engine) {
    const RpcContext context = TestContext(&rpc_.metrics, &rpc_.logger, 1);
    Serving serving{std::move(engine), DescribeModes(context.rules, context.max_image_pixels)};
    serving.info.set_model("deepseek-ocr");
    serving.info.set_version("1.2.3");
    serving.info.set_weights_fingerprint("f00d");
    rpc_.service.SetServing(std::make_shared<const Serving>(std::move(serving)));
  }
  void Serve() { Serve(rpc_.engine); }

  grpc::Status Infer(const ModelInferRequest& request) {
    context_ = std::make_unique<grpc::ClientContext>();
    response_.Clear();
    return stub_->ModelInfer(context_.get(), request, &response_);
  }

  // `request` must live until the call has ended; the answer is in response_ then.
  std::future<grpc::Status> StartInfer(const ModelInferRequest& request) {
    context_ = std::make_unique<grpc::ClientContext>();
    response_.Clear();
    ended_ = {};
    stub_->async()->ModelInfer(context_.get(), &request, &response_,
                               [this](const grpc::Status& status) { ended_.set_value(status); });
    return ended_.get_future();
  }

  // The jobs of a batch, as they came.
  std::vector<PuppetEngine::Held> TakeHeld(int count) {
    std::vector<PuppetEngine::Held> held;
    for (int i = 0; i < count; ++i) held.push_back(rpc_.engine->Take());
    return held;
  }

  // Calls are counted when gRPC is done with them, which may be after the client has its answer.
  bool Counted(const std::string& method, const std::string& code, double calls) {
    return Eventually([&] {
      return rpc_.Metric("deepencoder_requests_total", {{"method", method}, {"code", code}}) ==
             calls;
    });
  }

  bool ServerReady() {
    grpc::ClientContext context;
    inference::ServerReadyResponse response;
    EXPECT_TRUE(stub_->ServerReady(&context, {}, &response).ok());
    return response.ready();
  }

  grpc::Status ModelReady(const std::string& name, const std::string& version, bool* ready) {
    grpc::ClientContext context;
    inference::ModelReadyRequest request;
    request.set_name(name);
    request.set_version(version);
    inference::ModelReadyResponse response;
    const grpc::Status status = stub_->ModelReady(&context, request, &response);
    *ready = response.ready();
    return status;
  }

  RpcServer rpc_;  // for its engine, metrics, log and admission
  InferenceService service_{TestContext(&rpc_.metrics, &rpc_.logger, 1),
                            [this] { return rpc_.service.Admit(); }};
  std::unique_ptr<GrpcServer> server_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<GRPCInferenceService::Stub> stub_;
  std::unique_ptr<grpc::ClientContext> context_;
  std::promise<grpc::Status> ended_;
  ModelInferResponse response_;
};

TEST_F(InferenceServiceTest, ProbesFollowTheServersLife) {
  grpc::ClientContext context;
  inference::ServerLiveResponse live;
  ASSERT_TRUE(stub_->ServerLive(&context, {}, &live).ok());
  EXPECT_TRUE(live.live());
  bool ready = true;
  EXPECT_FALSE(ServerReady());
  EXPECT_TRUE(ModelReady("deepseek-ocr", "", &ready).ok());
  EXPECT_FALSE(ready);

  Serve();
  EXPECT_TRUE(ServerReady());
  EXPECT_TRUE(ModelReady("deepseek-ocr", "1", &ready).ok());
  EXPECT_TRUE(ready);
  EXPECT_EQ(ModelReady("resnet", "", &ready).error_code(), grpc::NOT_FOUND);
  EXPECT_EQ(ModelReady("deepseek-ocr", "2", &ready).error_code(), grpc::NOT_FOUND);

  Serve(std::make_shared<BrokenEngine>());
  EXPECT_FALSE(ServerReady());
  EXPECT_TRUE(ModelReady("deepseek-ocr", "", &ready).ok());
  EXPECT_FALSE(ready);

  Serve();
  rpc_.service.Drain();
  EXPECT_FALSE(ServerReady());
}

TEST_F(InferenceServiceTest, DescribesServerModelAndConfig) {
  Serve();
  grpc::ClientContext server_context, metadata_context, config_context;
  inference::ServerMetadataResponse server;
  ASSERT_TRUE(stub_->ServerMetadata(&server_context, {}, &server).ok());
  EXPECT_EQ(server.name(), "deepencoder-server");
  EXPECT_EQ(server.version(), "1.2.3");

  inference::ModelMetadataRequest metadata_request;
  metadata_request.set_name("deepseek-ocr");
  inference::ModelMetadataResponse metadata;
  ASSERT_TRUE(stub_->ModelMetadata(&metadata_context, metadata_request, &metadata).ok());
  EXPECT_EQ(metadata.name(), "deepseek-ocr");
  EXPECT_THAT(metadata.versions(), ElementsAre("1"));
  ASSERT_EQ(metadata.inputs_size(), 1);
  EXPECT_EQ(metadata.inputs(0).name(), "image");
  EXPECT_EQ(metadata.inputs(0).datatype(), "BYTES");
  EXPECT_THAT(metadata.inputs(0).shape(), ElementsAre(-1, 1));
  ASSERT_EQ(metadata.outputs_size(), 2);
  EXPECT_THAT(metadata.outputs(0).shape(), ElementsAre(-1, -1, 1280));
  EXPECT_THAT(metadata.outputs(1).shape(), ElementsAre(-1, 8));

  inference::ModelConfigRequest config_request;
  config_request.set_name("deepseek-ocr");
  inference::ModelConfigResponse response;
  ASSERT_TRUE(stub_->ModelConfig(&config_context, config_request, &response).ok());
  const inference::ModelConfig& config = response.config();
  EXPECT_EQ(config.max_batch_size(), 32);
  EXPECT_TRUE(config.has_dynamic_batching());
  EXPECT_EQ(config.input(0).data_type(), inference::TYPE_STRING);
  EXPECT_THAT(config.input(0).dims(), ElementsAre(1));
  EXPECT_EQ(config.output(0).data_type(), inference::TYPE_BF16);
  EXPECT_THAT(config.output(0).dims(), ElementsAre(-1, 1280));
  EXPECT_EQ(config.output(1).data_type(), inference::TYPE_INT32);
  EXPECT_EQ(config.parameters().at("modes").string_value(), "tiny,small,base,gundam");
  EXPECT_EQ(config.parameters().at("default_max_tiles").string_value(), "9");
  EXPECT_EQ(config.parameters().at("weights_fingerprint").string_value(), "f00d");
  for (const char* method : {"ServerMetadata", "ModelMetadata", "ModelConfig"}) {
    EXPECT_TRUE(Counted(method, "OK", 1)) << method;
  }
}

TEST_F(InferenceServiceTest, InferGivesTheJobWhatTheRequestSays) {
  Serve();
  EncodeJob seen;
  rpc_.engine->Play([&seen](const EncodeJob& job) {
    seen = job;
    return FilledResult(job, {3, 2});
  });
  ModelInferRequest request = RawRequest({1}, {"file"});
  request.set_id("page 1");
  request.set_model_version("1");
  Set(request, "mode", "gundam");
  Set(request, "max_tiles", 12);
  Set(request, "dtype", "FP32");
  Set(request, "timeout", int64_t{3600} * 1'000'000);
  const grpc::Status status = Infer(request);
  ASSERT_TRUE(status.ok()) << status.error_message();
  const auto& file = std::get<EncodedFile>(seen.image).file.bytes;
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(file.data()), file.size()), "file");
  EXPECT_EQ(seen.mode, Mode::kGundam);
  EXPECT_EQ(seen.max_tiles, 12);
  EXPECT_EQ(seen.dtype, DType::kFp32);
  EXPECT_EQ(seen.alpha, AlphaPolicy::kWhite);  // the server's default
  EXPECT_LT(absl::AbsDuration(seen.deadline - absl::Now() - absl::Hours(1)), absl::Minutes(1));
  EXPECT_TRUE(context_->GetServerTrailingMetadata().contains("x-request-id"));

  EXPECT_EQ(response_.id(), "page 1");
  EXPECT_THAT(response_.outputs(0).shape(), ElementsAre(10 * 2 * (10 * 3 + 1) + 273, 1280));
  EXPECT_TRUE(Counted("ModelInfer", "OK", 1));
  EXPECT_EQ(rpc_.Metric("deepencoder_request_duration_seconds", {{"method", "ModelInfer"}}), 1);
}

TEST_F(InferenceServiceTest, ADeadlineEarlierThanTheTimeoutCounts) {
  Serve();
  absl::Time seen;
  rpc_.engine->Play([&seen](const EncodeJob& job) {
    seen = job.deadline;
    return FilledResult(job);
  });
  ASSERT_TRUE(Infer(RawRequest({1}, {"file"})).ok());
  EXPECT_EQ(seen, absl::InfiniteFuture());
  ModelInferRequest request = RawRequest({1}, {"file"});
  Set(request, "timeout", int64_t{10} * 3600 * 1'000'000);
  grpc::ClientContext context;
  const absl::Time deadline = absl::Now() + absl::Hours(1);
  context.set_deadline(absl::ToChronoTime(deadline));
  ASSERT_TRUE(stub_->ModelInfer(&context, request, &response_).ok());
  EXPECT_LT(absl::AbsDuration(seen - deadline), absl::Minutes(1));
}

TEST_F(InferenceServiceTest, BatchIsAnsweredInItsOrderWhateverTheEnginesOrder) {
  Serve();
  const ModelInferRequest request = RawRequest({3, 1}, {"a", "b", "c"});
  std::future<grpc::Status> ended = StartInfer(request);
  std::vector<PuppetEngine::Held> held = TakeHeld(3);
  for (const size_t i : {1, 2, 0}) {
    const auto& file = std::get<EncodedFile>(held[i].job.image).file.bytes;
    held[i].job.mode = Mode::kTiny;
    held[i].done(FilledResult(held[i].job, {}, static_cast<char>(file[0])));
  }
  const grpc::Status status = ended.get();
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_THAT(response_.outputs(0).shape(), ElementsAre(3, 73, 1280));
  const size_t bytes = size_t{2} * 73 * 1280;
  EXPECT_EQ(response_.raw_output_contents(0),
            std::string(bytes, 'a') + std::string(bytes, 'b') + std::string(bytes, 'c'));
}

TEST_F(InferenceServiceTest, AFailureOfOneImageEndsItsBatch) {
  Serve();
  const ModelInferRequest request = RawRequest({3, 1}, {"a", "b", "c"});
  std::future<grpc::Status> ended = StartInfer(request);
  std::vector<PuppetEngine::Held> held = TakeHeld(3);
  held[0].done(FilledResult(held[0].job));
  EXPECT_FALSE(held[2].job.cancel->cancelled());
  held[1].done(WithRetryAfter(absl::ResourceExhaustedError("full"), absl::Milliseconds(1250)));
  EXPECT_TRUE(held[2].job.cancel->cancelled());
  held[2].done(absl::CancelledError("nobody waits"));
  const grpc::Status status = ended.get();
  EXPECT_EQ(status.error_code(), grpc::RESOURCE_EXHAUSTED);
  EXPECT_EQ(status.error_message(), "image 1: full");
  wire::RpcStatus details;
  ASSERT_TRUE(details.ParseFromString(status.error_details()));
  EXPECT_EQ(details.details_size(), 1);  // the retry hint
}

TEST_F(InferenceServiceTest, CancellationReachesTheJob) {
  Serve();
  const ModelInferRequest request = RawRequest({1}, {"a"});
  std::future<grpc::Status> ended = StartInfer(request);
  PuppetEngine::Held held = rpc_.engine->Take();
  context_->TryCancel();
  EXPECT_EQ(ended.get().error_code(), grpc::CANCELLED);
  EXPECT_TRUE(Eventually([&] { return held.job.cancel->cancelled(); }));
  held.done(absl::CancelledError("nobody waits"));
  EXPECT_TRUE(Eventually([&] { return rpc_.Metric("deepencoder_calls_active") == 0; }));
  EXPECT_TRUE(Counted("ModelInfer", "CANCELLED", 1));
}

TEST_F(InferenceServiceTest, RefusesWithACodeAndAReason) {
  Serve();
  struct Case {
    std::function<void(ModelInferRequest&)> change;
    grpc::StatusCode code;
    std::string text;
  };
  const std::vector<Case> cases = {
      {[](auto& r) { r.set_model_name("resnet"); }, grpc::NOT_FOUND,
       "no model 'resnet'; served: deepseek-ocr"},
      {[](auto& r) { r.set_model_version("2"); }, grpc::NOT_FOUND, "no version '2'; served: 1"},
      {[](auto& r) { r.mutable_inputs(0)->set_datatype("FP32"); }, grpc::INVALID_ARGUMENT, "BYTES"},
      {[](auto& r) { Set(r, "mode", "large"); }, grpc::INVALID_ARGUMENT,
       "large is not served here; served: tiny, small"},
      {[](auto& r) { r = RawRequest({1}, {""}); }, grpc::INVALID_ARGUMENT,
       "the image file is empty"},
      {[](auto& r) {
         r = RawRequest({2, 1}, {"one", ""});
       },
       grpc::INVALID_ARGUMENT, "image 1: the image file is empty"},
      {[](auto& r) { r.set_id(std::string(257, 'x')); }, grpc::INVALID_ARGUMENT, "limit is 256"},
      {[](auto& r) { r.set_raw_input_contents(0, RawElement(std::string((1 << 20) + 1, 'x'))); },
       grpc::RESOURCE_EXHAUSTED, "the limit is 1048576"},
      {[](auto& r) { SetRegion(*r.mutable_inputs(0)->mutable_parameters(), "region", 10); },
       grpc::UNIMPLEMENTED, "--shared-memory"},
  };
  for (const Case& bad : cases) {
    ModelInferRequest request = RawRequest({1}, {"file"});
    bad.change(request);
    const grpc::Status status = Infer(request);
    EXPECT_EQ(status.error_code(), bad.code) << bad.text;
    EXPECT_THAT(status.error_message(), HasSubstr(bad.text));
  }
  EXPECT_EQ(rpc_.engine->seen(), 0);
  EXPECT_TRUE(Counted("ModelInfer", "NOT_FOUND", 2));
}

TEST_F(InferenceServiceTest, PassesTheEnginesStatus) {
  Serve();
  rpc_.engine->Play([](const EncodeJob&) { return absl::InternalError("CUDA error 700"); });
  const grpc::Status status = Infer(RawRequest({1}, {"file"}));
  EXPECT_EQ(status.error_code(), grpc::INTERNAL);
  EXPECT_EQ(status.error_message(), "CUDA error 700");
}

TEST_F(InferenceServiceTest, UnavailableWhileStartingAndDraining) {
  EXPECT_THAT(Infer(RawRequest({1}, {"file"})).error_message(), HasSubstr("starting"));
  Serve();
  rpc_.service.Drain();
  const grpc::Status status = Infer(RawRequest({1}, {"file"}));
  EXPECT_EQ(status.error_code(), grpc::UNAVAILABLE);
  EXPECT_THAT(status.error_message(), HasSubstr("draining"));
  grpc::ClientContext context;
  inference::ServerMetadataResponse metadata;
  EXPECT_EQ(stub_->ServerMetadata(&context, {}, &metadata).error_code(), grpc::UNAVAILABLE);
}

TEST_F(InferenceServiceTest, StreamsAndWhatIsNotListedAreUnimplemented) {
  Serve();
  grpc::ClientContext context;
  const auto stream = stub_->ModelStreamInfer(&context);
  inference::ModelStreamInferResponse response;
  EXPECT_FALSE(stream->Read(&response));
  const grpc::Status status = stream->Finish();
  EXPECT_EQ(status.error_code(), grpc::UNIMPLEMENTED);
  EXPECT_THAT(status.error_message(), HasSubstr("call ModelInfer"));

  const grpc::Status unlisted =
      CallWithBytes(channel_, "/inference.GRPCInferenceService/ModelStatistics", "");
  EXPECT_EQ(unlisted.error_code(), grpc::UNIMPLEMENTED);
}

TEST_F(InferenceServiceTest, BytesThatAreNoMessageAreRefused) {
  Serve();
  ExpectRefusesNoMessage(channel_, "/inference.GRPCInferenceService/ModelInfer",
                         "ModelInferRequest");
}

TEST_F(InferenceServiceTest, NoMethodWithoutAnImageParsesALongMessage) {
  Serve();
  ExpectRefusesLongMessages(channel_, "inference.GRPCInferenceService",
                            {"ModelInfer", "ModelStreamInfer"});
}

TEST_F(InferenceServiceTest, EmptyPartsBeyondTheLimitAreRefused) {
  Serve();
  const std::string method = "/inference.GRPCInferenceService/ModelInfer";
  std::string inputs, parameters;
  for (int i = 0; i < 100'000; ++i) {
    inputs += std::string("\x2A\0", 2);
    parameters += std::string("\x22\0", 2);
  }
  for (const std::string& bytes : {inputs, parameters}) {
    const grpc::Status status = CallWithBytes(channel_, method, bytes);
    EXPECT_EQ(status.error_code(), grpc::INVALID_ARGUMENT);
    EXPECT_THAT(status.error_message(), HasSubstr("more than 65536 fields"));
  }
}

// A client that sends pixels where a file belongs is told so, however many they are.
TEST_F(InferenceServiceTest, NumbersInPackedFieldsAreRefusedForTheirType) {
  Serve();
  for (const bool floats : {false, true}) {
    ModelInferRequest request = EmptyRequest({1});
    request.mutable_inputs(0)->set_datatype(floats ? "FP32" : "UINT8");
    auto& contents = *request.mutable_inputs(0)->mutable_contents();
    for (int i = 0; i < 200'000; ++i) {
      if (floats) {
        contents.add_fp32_contents(0.5F);
      } else {
        contents.add_uint_contents(200);
      }
    }
    const grpc::Status status = Infer(request);
    EXPECT_EQ(status.error_code(), grpc::INVALID_ARGUMENT);
    EXPECT_THAT(status.error_message(), HasSubstr("expected BYTES"));
  }
}

}  // namespace
}  // namespace deepencoder::kserve
