#include "server/rpc/call_trace.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "deepencoder/v1/shared_memory.grpc.pb.h"
#include "deepencoder/v1/vision_encoder.grpc.pb.h"
#include "server/engine/clock.h"
#include "server/rpc/status.h"

namespace deepencoder {
namespace {

constexpr char kKserveService[] = "inference.GRPCInferenceService";
// W3C asks to pass on at least so much; more is not kept.
constexpr size_t kMaxTracestate = 512;

std::string_view ServiceOf(Method method) {
  switch (method) {
    case Method::kEncodeImage:
    case Method::kEncodeImages:
    case Method::kGetModelInfo:
      return v1::VisionEncoder::service_full_name();
    case Method::kRegisterRegion:
    case Method::kUnregisterRegion:
      return v1::SharedMemory::service_full_name();
    default:
      return kKserveService;
  }
}

std::string_view Metadata(const grpc::ServerContextBase& context, const char* key) {
  const auto& metadata = context.client_metadata();
  const auto found = metadata.find(key);
  return found == metadata.end() ? std::string_view()
                                 : std::string_view(found->second.data(), found->second.size());
}

// As OpenTelemetry's conventions for a gRPC server have it: the client's mistakes are not its failures.
bool IsFailure(grpc::StatusCode code) {
  switch (code) {
    case grpc::StatusCode::UNKNOWN:
    case grpc::StatusCode::DEADLINE_EXCEEDED:
    case grpc::StatusCode::UNIMPLEMENTED:
    case grpc::StatusCode::INTERNAL:
    case grpc::StatusCode::UNAVAILABLE:
    case grpc::StatusCode::DATA_LOSS:
      return true;
    default:
      return false;
  }
}

void Describe(const std::string& image_id, const absl::StatusOr<EncodeResult>& result, Span& span) {
  if (!image_id.empty()) span.attributes.emplace_back("deepencoder.image_id", image_id);
  if (!result.ok()) {
    span.failed = IsFailure(static_cast<grpc::StatusCode>(result.status().code()));
    span.message = PrintableMessage(result.status());
    return;
  }
  span.attributes.emplace_back("deepencoder.mode", std::string(SpecOf(result->mode).name));
  span.attributes.emplace_back("deepencoder.rows", int64_t{result->rows});
  span.attributes.emplace_back("deepencoder.tiles", int64_t{result->tiles.count()});
  span.attributes.emplace_back("deepencoder.cache_hit", result->cache_hit);
}

void AddSteps(const Timeline& timeline, const Span& parent, std::vector<Span>& spans) {
  for (const Timeline::Step& step : timeline.steps()) {
    spans.push_back(Tracer::Child(parent, std::string(step.name), step.begin, step.end));
  }
}

}  // namespace

CallTrace::CallTrace(const Tracer* tracer, grpc::ServerContextBase& context, Method method,
                     const std::string& request_id)
    : tracer_(tracer) {
  const std::string_view traceparent = Metadata(context, kTraceparentKey);
  if (tracer_ == nullptr) {
    // Nothing is recorded, but the log can be found by the client's trace.
    if (const auto theirs = ParseTraceparent(traceparent)) span_.context = *theirs;
    return;
  }
  span_ = tracer_->Begin(traceparent,
                         ShortenTracestate(Metadata(context, kTracestateKey), kMaxTracestate));
  context.AddTrailingMetadata(kTraceparentKey, FormatTraceparent(span_.context));
  if (!kept()) return;
  span_.begin = SteadyNow();
  to_wall_ = absl::Now() - span_.begin;
  const std::string_view service = ServiceOf(method);
  span_.name = absl::StrCat(std::string(service), "/", std::string(Name(method)));
  span_.attributes = {{"rpc.system", std::string("grpc")},
                      {"rpc.service", std::string(service)},
                      {"rpc.method", std::string(Name(method))},
                      {"deepencoder.request_id", request_id}};
}

std::string CallTrace::trace_id() const {
  return span_.context.trace_id == TraceId{} ? "" : Hex(span_.context.trace_id);
}

std::shared_ptr<Timeline> CallTrace::NewTimeline() const {
  return kept() ? std::make_shared<Timeline>() : nullptr;
}

void CallTrace::OnAnswer(std::shared_ptr<Timeline> timeline, const std::string& image_id,
                         const absl::StatusOr<EncodeResult>& result) {
  if (!kept()) return;
  timeline_ = std::move(timeline);
  answered_ = SteadyNow();
  Describe(image_id, result, span_);
}

void CallTrace::RecordImage(const Timeline* timeline, const std::string& image_id,
                            absl::Time arrived, absl::Time answered,
                            const absl::StatusOr<EncodeResult>& result) const {
  if (!kept()) return;
  const absl::Time now = SteadyNow();
  std::vector<Span> spans = {Tracer::Child(span_, "image", arrived, now)};
  Describe(image_id, result, spans.front());
  const Span image = spans.front();
  if (timeline != nullptr) AddSteps(*timeline, image, spans);
  spans.push_back(Tracer::Child(image, "reply", answered, now));
  Record(std::move(spans));
}

void CallTrace::Record(std::vector<Span> spans) const {
  for (Span& span : spans) {
    span.begin += to_wall_;
    span.end += to_wall_;
  }
  tracer_->Record(std::move(spans));
}

void CallTrace::End(grpc::StatusCode code) {
  if (!kept()) return;
  span_.end = SteadyNow();
  span_.attributes.emplace_back("rpc.grpc.status_code", int64_t{code});
  span_.failed = IsFailure(code);
  std::vector<Span> spans;
  if (timeline_ != nullptr) AddSteps(*timeline_, span_, spans);
  if (answered_ != absl::InfiniteFuture()) {
    spans.push_back(Tracer::Child(span_, "reply", answered_, span_.end));
  }
  spans.push_back(std::move(span_));
  Record(std::move(spans));
}

}  // namespace deepencoder
