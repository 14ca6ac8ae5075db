#include "server/trace/tracer.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

namespace deepencoder {
namespace {

// By the trace's id, as OpenTelemetry's TraceIdRatioBased: servers of one ratio decide alike.
bool IsSampled(const TraceId& id, double ratio) {
  uint64_t low = 0;
  for (size_t i = 8; i < id.size(); ++i) low = low << 8 | id[i];
  constexpr double kRange = 9223372036854775808.0;  // 2^63
  return static_cast<double>(low >> 1) < ratio * kRange;
}

// What W3C Trace Context allows in it. gRPC lets other bytes in, and a collector would refuse every span of a
// message whose strings are not UTF-8.
bool IsTracestate(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c >= 0x20 && c < 0x7F; });
}

}  // namespace

Span Tracer::Begin(std::string_view traceparent, std::string_view tracestate) const {
  Span span;
  span.kind = Span::Kind::kServer;
  if (const std::optional<TraceContext> parent = ParseTraceparent(traceparent)) {
    span.context.trace_id = parent->trace_id;
    span.context.sampled = parent->sampled;
    span.parent = parent->span_id;
    span.remote_parent = true;
    if (span.context.sampled && IsTracestate(tracestate)) span.trace_state = tracestate;
  } else {
    span.context.trace_id = RandomTraceId();
    span.context.sampled = IsSampled(span.context.trace_id, ratio_);
  }
  span.context.span_id = RandomSpanId();
  return span;
}

Span Tracer::Child(const Span& parent, std::string name, absl::Time begin, absl::Time end) {
  Span span;
  span.context = parent.context;
  span.context.span_id = RandomSpanId();
  span.parent = parent.context.span_id;
  span.trace_state = parent.trace_state;
  span.name = std::move(name);
  span.begin = begin;
  span.end = end;
  return span;
}

}  // namespace deepencoder
