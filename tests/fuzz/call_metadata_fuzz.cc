// A call's path and metadata, as a client that keeps to no rules may send them: who it is, whether it may
// call, under which id it is logged, and what a tracer passes on. The input's first line is the path, its
// second the address; each other one is a key, a blank and a value.
#include <grpcpp/grpcpp.h>
#include <grpcpp/test/server_context_test_spouse.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "encoder/weights/json.h"
#include "server/rpc/authenticator.h"
#include "server/rpc/call_trace.h"
#include "server/rpc/client_identity.h"
#include "server/rpc/hold_grpc.h"
#include "server/rpc/request_id.h"
#include "server/trace/otlp_request.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/lines.h"

namespace deepencoder::fuzz {
namespace {

constexpr char kSecret[] = "correct-horse-battery";
constexpr size_t kMaxLine = size_t{1} << 20;  // bytes of a line of the log

class NoObserver final : public RpcObserver {
 public:
  void OnCallStarted(Method /*method*/) override {}
  void OnCallEnded(Method /*method*/, grpc::StatusCode /*code*/) override {}
  void OnAnswered(Method /*method*/, double /*seconds*/) override {}
  void OnStreamImage(grpc::StatusCode /*code*/) override {}
  void OnAuthFailure(AuthFailure /*failure*/) override {}
  void OnConnections(int64_t /*open*/) override {}
  void OnConnectionRefused(ConnectionRefusal /*why*/) override {}
  void OnStalledReply() override {}
};

class Kept final : public SpanSink {
 public:
  void Add(std::vector<Span> added) override { spans = std::move(added); }
  std::vector<Span> spans;
};

// What stands around calls, made once a process.
struct Surroundings {
  NoObserver observer;
  Logger logger{LogLevel::kDebug, LogFormat::kJson, [](std::string_view line) {
                  Require(ParseJson(line, kMaxLine).ok(), "a line of the log is JSON");
                  Require(line.find('\n') == line.size() - 1, "a line of the log is one line");
                }};
  Authenticator authenticator{
      {std::begin(kOpenServices), std::end(kOpenServices)}, &observer, &logger};
  std::unique_ptr<Reloaded<TokenSet>> tokens;

  Surroundings() {
    HoldGrpc();  // else each call would start its threads anew
    auto made = Reloaded<TokenSet>::Create(
        "tokens", {}, absl::Hours(1), [] { return TokenSet::Parse(std::string("me:") + kSecret); },
        &logger, nullptr);
    Require(made.ok(), "a token can be read");
    tokens = *std::move(made);
    authenticator.SetTokens(tokens.get());
  }
};

using Metadata = std::multimap<std::string, std::string>;

void RequireVerdict(const absl::Status& verdict, std::string_view path,
                    const std::vector<std::string_view>& sent) {
  const bool open = path.find("grpc.health.v1.Health") != std::string_view::npos;
  const bool right = sent.size() == 1 &&
                     absl::EqualsIgnoreCase(std::string(sent.front().substr(0, 7)), "bearer ") &&
                     sent.front().substr(std::min<size_t>(7, sent.front().size())) == kSecret;
  if (verdict.ok()) return Require(open || right, "only a right token opens what is not open");
  Require(!right, "a right token opens everything");
  Require(absl::IsUnauthenticated(verdict), "who has no right token is told that it is not known");
  Require(!absl::StrContains(verdict.message(), kSecret), "a refusal does not say what is right");
}

void RequireTrace(grpc::ServerContext& context, const Metadata& sent,
                  const std::string& request_id) {
  Kept kept;
  const Tracer tracer(0.5, &kept);
  CallTrace trace(&tracer, context, Method::kEncodeImage, request_id);
  Require(trace.trace_id().size() == 32, "a traced call has a trace's id");
  const auto theirs = sent.find(kTraceparentKey);
  const auto parent = theirs == sent.end() ? std::nullopt : ParseTraceparent(theirs->second);
  if (parent)
    Require(trace.trace_id() == Hex(parent->trace_id), "a call belongs to its client's trace");
  trace.End(grpc::StatusCode::OK);
  Require(!parent || kept.spans.empty() != parent->sampled, "the client's choice is kept to");
  for (const Span& span : kept.spans)
    Require(span.trace_state.size() <= 512, "what is passed on is bounded");

  opentelemetry::proto::collector::trace::v1::ExportTraceServiceRequest message;
  Require(message.ParseFromString(ToOtlp({}, "1", kept.spans).SerializeAsString()),
          "a collector can read a span");
}

}  // namespace

void TryInput(const uint8_t* data, size_t size) {
  static Surroundings around;
  std::vector<std::string_view> lines = LinesOf(AsText(data, size));
  lines.resize(std::max<size_t>(lines.size(), 2));
  const std::string_view path = lines[0], peer = lines[1];

  grpc::ServerContext context;
  grpc::testing::ServerContextTestSpouse spouse(&context);
  Metadata sent;
  for (size_t i = 2; i < lines.size(); ++i) {
    const size_t blank = std::min(lines[i].find(' '), lines[i].size());
    std::string value(lines[i].substr(std::min(blank + 1, lines[i].size())));
    sent.emplace(lines[i].substr(0, blank), std::move(value));
  }
  std::vector<std::string_view> authorization;
  for (const auto& [key, value] : sent) {
    spouse.AddClientMetadata(key, value);
    if (key == "authorization") authorization.push_back(value);
  }

  RequireVerdict(around.authenticator.Check(path, authorization), path, authorization);
  Require(IdentityOf(context, &around.authenticator).size() <= 256, "a client's name is bounded");
  Require(AddressOf(peer).size() <= peer.size() + 3,
          "an address is a part of the peer's, or its /64");
  const std::string request_id = TakeRequestId(context);
  Require(!request_id.empty() && request_id.size() <= 128 &&
              std::all_of(request_id.begin(), request_id.end(),
                          [](char c) { return c > ' ' && c < 0x7F; }),
          "a call's id is short and printable");
  RequireTrace(context, sent, request_id);
  for (const auto& [key, value] : spouse.GetTrailingMetadata()) {
    Require(std::all_of(value.begin(), value.end(), [](char c) { return c >= ' ' && c < 0x7F; }),
            "what is sent back is what metadata may hold");
  }
}

}  // namespace deepencoder::fuzz
