#include "server/trace/otlp_request.h"

#include <cstdint>
#include <variant>

#include "absl/time/time.h"

namespace deepencoder {
namespace {

namespace common = opentelemetry::proto::common::v1;
namespace trace = opentelemetry::proto::trace::v1;

constexpr char kScope[] = "deepencoder";

void Set(const Span::Attribute& attribute, common::KeyValue* to) {
  to->set_key(attribute.first);
  common::AnyValue* value = to->mutable_value();
  if (const auto* text = std::get_if<std::string>(&attribute.second)) {
    value->set_string_value(*text);
  } else if (const auto* integer = std::get_if<int64_t>(&attribute.second)) {
    value->set_int_value(*integer);
  } else if (const auto* real = std::get_if<double>(&attribute.second)) {
    value->set_double_value(*real);
  } else {
    value->set_bool_value(std::get<bool>(attribute.second));
  }
}

void Set(const Span& span, trace::Span* to) {
  to->set_trace_id(std::string(Bytes(span.context.trace_id)));
  to->set_span_id(std::string(Bytes(span.context.span_id)));
  to->set_trace_state(span.trace_state);
  if (span.parent != SpanId{}) to->set_parent_span_id(std::string(Bytes(span.parent)));
  to->set_flags((span.context.sampled ? 1U : 0U) | trace::SPAN_FLAGS_CONTEXT_HAS_IS_REMOTE_MASK |
                (span.remote_parent ? uint32_t{trace::SPAN_FLAGS_CONTEXT_IS_REMOTE_MASK} : 0U));
  to->set_name(span.name);
  to->set_kind(span.kind == Span::Kind::kServer ? trace::Span::SPAN_KIND_SERVER
                                                : trace::Span::SPAN_KIND_INTERNAL);
  to->set_start_time_unix_nano(static_cast<uint64_t>(absl::ToUnixNanos(span.begin)));
  to->set_end_time_unix_nano(static_cast<uint64_t>(absl::ToUnixNanos(span.end)));
  for (const Span::Attribute& attribute : span.attributes) Set(attribute, to->add_attributes());
  if (!span.failed) return;
  to->mutable_status()->set_code(trace::Status::STATUS_CODE_ERROR);
  to->mutable_status()->set_message(span.message);
}

}  // namespace

opentelemetry::proto::collector::trace::v1::ExportTraceServiceRequest ToOtlp(
    const std::vector<Span::Attribute>& resource, const std::string& version,
    std::span<const Span> spans) {
  opentelemetry::proto::collector::trace::v1::ExportTraceServiceRequest request;
  trace::ResourceSpans* sender = request.add_resource_spans();
  for (const Span::Attribute& attribute : resource) {
    Set(attribute, sender->mutable_resource()->add_attributes());
  }
  trace::ScopeSpans* scope = sender->add_scope_spans();
  scope->mutable_scope()->set_name(kScope);
  scope->mutable_scope()->set_version(version);
  for (const Span& span : spans) Set(span, scope->add_spans());
  return request;
}

}  // namespace deepencoder
