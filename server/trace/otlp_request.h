// Spans -> OpenTelemetry's messages.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "opentelemetry/proto/collector/trace/v1/trace_service.pb.h"
#include "server/trace/span.h"

namespace deepencoder {

// `resource`: what is true of the whole process (service.name, ...).
opentelemetry::proto::collector::trace::v1::ExportTraceServiceRequest ToOtlp(
    const std::vector<Span::Attribute>& resource, const std::string& version,
    std::span<const Span> spans);

}  // namespace deepencoder
