// What a call leaves in traces, logs and trailing metadata.
#include "server/rpc/call_trace.h"

#include <gmock/gmock.h>

#include <map>
#include <string>
#include <vector>

#include "server/rpc/server_timing.h"
#include "tests/server/rpc/rpc_fixture.h"

namespace deepencoder {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::MatchesRegex;
using testing::Not;

constexpr char kTrace[] = "0af7651916cd43dd8448eb211c80319c";
constexpr char kParent[] = "b7ad6b7169203331";

class Kept final : public SpanSink {
 public:
  void Add(std::vector<Span> added) override {
    const MutexLock lock(mutex_);
    for (Span& span : added) spans_.push_back(std::move(span));
    changed_.NotifyAll();
  }
  // Waits for so many.
  std::vector<Span> Await(size_t count) {
    const MutexLock lock(mutex_);
    while (spans_.size() < count) changed_.Wait(mutex_);
    return spans_;
  }
  size_t size() {
    const MutexLock lock(mutex_);
    return spans_.size();
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::vector<Span> spans_ ABSL_GUARDED_BY(mutex_);
};

class CallTraceTest : public testing::Test {
 protected:
  static std::string Traceparent(bool sampled) {
    return std::string("00-") + kTrace + "-" + kParent + (sampled ? "-01" : "-00");
  }
  // Answers as an engine that takes its times.
  static void Play(RpcServer& server) {
    server.engine->Play([](const EncodeJob& job) {
      if (job.timeline != nullptr) {
        const absl::Time now = absl::Now();
        job.timeline->Add("admission", now, now);
        job.timeline->Add("compute", now, now + absl::Milliseconds(4));
      }
      return FilledResult(job);
    });
  }
  grpc::Status Call(RpcServer& server, const std::string& traceparent,
                    const v1::EncodeImageRequest& request = SmallRequest("page 1")) {
    grpc::ClientContext context;
    if (!traceparent.empty()) context.AddMetadata("traceparent", traceparent);
    context.AddMetadata("x-request-id", "r1");
    v1::EncodeImageResponse response;
    const grpc::Status status = server.stub->EncodeImage(&context, request, &response);
    trailers_.clear();
    for (const auto& [key, value] : context.GetServerTrailingMetadata()) {
      trailers_[std::string(key.data(), key.size())] = std::string(value.data(), value.size());
    }
    return status;
  }
  static std::string Log(RpcServer& server) {
    const MutexLock lock(server.lines_mutex);
    std::string log;
    for (const std::string& line : server.lines) log += line;
    return log;
  }
  static std::map<std::string, Span> ByName(const std::vector<Span>& spans) {
    std::map<std::string, Span> named;
    for (const Span& span : spans) named[span.name] = span;
    return named;
  }
  static std::string Attribute(const Span& span, const std::string& key) {
    for (const auto& [name, value] : span.attributes) {
      if (name != key) continue;
      if (const auto* text = std::get_if<std::string>(&value)) return *text;
      if (const auto* number = std::get_if<int64_t>(&value)) return std::to_string(*number);
      return std::get<bool>(value) ? "true" : "false";
    }
    return "absent";
  }

  Kept sink_;
  const Tracer tracer_{0, &sink_};  // keeps what clients want kept
  std::map<std::string, std::string> trailers_;
};

TEST_F(CallTraceTest, IsNamedByTheMethodsService) {
  const Tracer all(1, &sink_);
  for (const auto& [method, name] :
       {std::pair{Method::kGetModelInfo, "deepencoder.v1.VisionEncoder/GetModelInfo"},
        {Method::kRegisterRegion, "deepencoder.v1.SharedMemory/RegisterRegion"},
        {Method::kUnregisterRegion, "deepencoder.v1.SharedMemory/UnregisterRegion"},
        {Method::kModelInfer, "inference.GRPCInferenceService/ModelInfer"}}) {
    grpc::CallbackServerContext context;
    CallTrace(&all, context, method, "r1").End(grpc::OK);
    EXPECT_EQ(sink_.Await(1).back().name, name);
  }
}

TEST_F(CallTraceTest, AKeptCallIsASpanWithItsStepsBeneath) {
  RpcServer server(4, "127.0.0.1:0", &tracer_);
  server.Serve();
  Play(server);
  ASSERT_TRUE(Call(server, Traceparent(true)).ok());
  const auto spans = ByName(sink_.Await(4));
  ASSERT_EQ(spans.size(), 4U);
  const Span& call = spans.at("deepencoder.v1.VisionEncoder/EncodeImage");
  EXPECT_EQ(Hex(call.context.trace_id), kTrace);
  EXPECT_EQ(Hex(call.parent), kParent);
  EXPECT_EQ(call.kind, Span::Kind::kServer);
  EXPECT_FALSE(call.failed);
  EXPECT_LE(call.begin, call.end);
  EXPECT_EQ(Attribute(call, "rpc.system"), "grpc");
  EXPECT_EQ(Attribute(call, "rpc.method"), "EncodeImage");
  EXPECT_EQ(Attribute(call, "rpc.grpc.status_code"), "0");
  EXPECT_EQ(Attribute(call, "deepencoder.request_id"), "r1");
  EXPECT_EQ(Attribute(call, "deepencoder.image_id"), "page 1");
  EXPECT_EQ(Attribute(call, "deepencoder.mode"), "tiny");
  EXPECT_EQ(Attribute(call, "deepencoder.rows"), "73");
  EXPECT_EQ(Attribute(call, "deepencoder.cache_hit"), "false");
  for (const char* step : {"admission", "compute", "reply"}) {
    EXPECT_EQ(spans.at(step).parent, call.context.span_id) << step;
    EXPECT_EQ(spans.at(step).context.trace_id, call.context.trace_id) << step;
  }
  EXPECT_EQ(spans.at("compute").end - spans.at("compute").begin, absl::Milliseconds(4));
  // The way back: the same trace, this call's span.
  EXPECT_EQ(trailers_["traceparent"],
            std::string("00-") + kTrace + "-" + Hex(call.context.span_id) + "-01");
  EXPECT_THAT(Log(server), HasSubstr(std::string("\"trace_id\":\"") + kTrace + "\""));
  EXPECT_THAT(Log(server), HasSubstr("\"request_id\":\"r1\""));
}

TEST_F(CallTraceTest, AStateThatIsTooLongLosesWholeMembers) {
  RpcServer server(4, "127.0.0.1:0", &tracer_);
  server.Serve();
  Play(server);
  std::string state, fits;  // all members, and all but the last
  for (const char* key : {"a", "b", "c", "d", "e", "f"}) {
    fits = state;
    state += (state.empty() ? "" : ",") + std::string(key) + "=" + std::string(98, 'x');
  }
  ASSERT_GT(state.size(), 512U);
  grpc::ClientContext context;
  context.AddMetadata("traceparent", Traceparent(true));
  context.AddMetadata("tracestate", state);
  v1::EncodeImageResponse response;
  ASSERT_TRUE(server.stub->EncodeImage(&context, SmallRequest("page 1"), &response).ok());
  for (const Span& span : sink_.Await(4)) EXPECT_EQ(span.trace_state, fits) << span.name;
}

TEST_F(CallTraceTest, ACallThatIsNotKeptHasIdsAlone) {
  RpcServer server(4, "127.0.0.1:0", &tracer_);
  server.Serve();
  bool asked = false;
  server.engine->Play([&asked](const EncodeJob& job) {
    asked = job.timeline != nullptr;
    return FilledResult(job);
  });
  ASSERT_TRUE(Call(server, Traceparent(false)).ok());
  EXPECT_FALSE(asked);
  EXPECT_THAT(trailers_["traceparent"],
              MatchesRegex(std::string("00-") + kTrace + "-[0-9a-f]{16}-00"));
  EXPECT_THAT(Log(server), HasSubstr(kTrace));
  ASSERT_TRUE(Call(server, "").ok());  // a root, which a ratio of 0 does not keep
  EXPECT_THAT(trailers_["traceparent"], MatchesRegex("00-[0-9a-f]{32}-[0-9a-f]{16}-00"));
  EXPECT_THAT(trailers_["traceparent"], Not(HasSubstr(kTrace)));
  EXPECT_EQ(sink_.size(), 0U);
}

TEST_F(CallTraceTest, WithoutATracerTheClientsTraceIsStillInTheLog) {
  RpcServer server;
  server.Serve();
  Play(server);
  ASSERT_TRUE(Call(server, Traceparent(true)).ok());
  EXPECT_FALSE(trailers_.contains("traceparent"));
  EXPECT_THAT(Log(server), HasSubstr(kTrace));
  ASSERT_TRUE(Call(server, "rubbish").ok());
  EXPECT_EQ(Log(server).find("trace_id"), Log(server).rfind("trace_id"));
}

TEST_F(CallTraceTest, FailuresOfTheServerAreMarked) {
  RpcServer server(4, "127.0.0.1:0", &tracer_);
  server.Serve();
  server.engine->Play([](const EncodeJob&) { return absl::InternalError("the device broke"); });
  EXPECT_EQ(Call(server, Traceparent(true)).error_code(), grpc::StatusCode::INTERNAL);
  const Span broken = sink_.Await(2).back();
  EXPECT_TRUE(broken.failed);
  EXPECT_EQ(broken.message, "the device broke");
  EXPECT_EQ(Attribute(broken, "rpc.grpc.status_code"), "13");
  // A client's mistake is not the server's failure.
  v1::EncodeImageRequest wrong = SmallRequest();
  wrong.set_mode(v1::MODE_LARGE);
  EXPECT_EQ(Call(server, Traceparent(true), wrong).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
  const Span refused = sink_.Await(4).back();
  EXPECT_FALSE(refused.failed);
  EXPECT_EQ(Attribute(refused, "rpc.grpc.status_code"), "3");
}

TEST_F(CallTraceTest, AStreamHasASpanForEachImage) {
  RpcServer server(4, "127.0.0.1:0", &tracer_);
  server.Serve();
  Play(server);
  grpc::ClientContext context;
  context.AddMetadata("traceparent", Traceparent(true));
  const auto stream = server.stub->EncodeImages(&context);
  for (const char* id : {"a", "b"}) {
    ASSERT_TRUE(stream->Write(SmallRequest(id)));
    v1::EncodeImageResponse response;
    ASSERT_TRUE(stream->Read(&response));
  }
  stream->WritesDone();
  ASSERT_TRUE(stream->Finish().ok());
  const std::vector<Span> spans =
      sink_.Await(9);  // 2 x (image, admission, compute, reply), the call
  ASSERT_EQ(spans.size(), 9U);
  const Span& call = spans.back();
  EXPECT_EQ(call.name, "deepencoder.v1.VisionEncoder/EncodeImages");
  for (int i = 0; i < 2; ++i) {
    const Span& image = spans[4 * i];
    EXPECT_EQ(image.name, "image");
    EXPECT_EQ(image.parent, call.context.span_id);
    EXPECT_EQ(Attribute(image, "deepencoder.image_id"), i == 0 ? "a" : "b");
    for (int step = 1; step < 4; ++step) {
      EXPECT_EQ(spans[4 * i + step].parent, image.context.span_id);
    }
  }
}

TEST_F(CallTraceTest, ServerTimingSaysWhereTheTimeWent) {
  RpcServer server;
  server.Serve();
  Play(server);
  ASSERT_TRUE(Call(server, "").ok());
  EXPECT_THAT(trailers_["server-timing"],
              MatchesRegex("decode;dur=1\\.000, views;dur=2\\.000, queue;dur=3\\.000, "
                           "compute;dur=4\\.000, assemble;dur=5\\.000, total;dur=[0-9]+\\.[0-9]+"));
  EXPECT_EQ(trailers_["x-request-id"], "r1");
  server.engine->Play([](const EncodeJob&) { return absl::InternalError("broken"); });
  EXPECT_FALSE(Call(server, "").ok());
  EXPECT_THAT(trailers_["server-timing"], MatchesRegex("total;dur=[0-9]+\\.[0-9]+"));
}

TEST(ServerTimingTest, IsInMillisecondsToTheMicrosecond) {
  const StageSeconds seconds = {.decode = 0.0048123, .compute = 1.5};
  EXPECT_EQ(FormatServerTiming(&seconds, absl::Milliseconds(1505)),
            "decode;dur=4.812, views;dur=0.000, queue;dur=0.000, compute;dur=1500.000, "
            "assemble;dur=0.000, total;dur=1505.000");
  EXPECT_EQ(FormatServerTiming(nullptr, absl::Microseconds(-5)), "total;dur=0.000");
}

}  // namespace
}  // namespace deepencoder
