// Where a call belongs in a distributed trace, as W3C Trace Context (https://www.w3.org/TR/trace-context/)
// writes it in the header traceparent: 00-<trace id>-<span id>-<flags>.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/strings/escaping.h"

namespace deepencoder {

using TraceId = std::array<uint8_t, 16>;
using SpanId = std::array<uint8_t, 8>;

struct TraceContext {
  TraceId trace_id{};
  SpanId span_id{};
  bool sampled = false;  // whoever began the trace keeps it
};

// Nothing if it is not valid; of versions to come what they share with this one.
std::optional<TraceContext> ParseTraceparent(std::string_view text);
std::string FormatTraceparent(const TraceContext& context);

// Of a tracestate that is longer than `most`, what fits, by whole members: as W3C has it, those of more than 128
// characters go first, then those at the end.
std::string ShortenTracestate(std::string_view text, size_t most);

// An id as bytes, and as lower-case hex digits.
template <size_t size>
std::string_view Bytes(const std::array<uint8_t, size>& id) {
  return {reinterpret_cast<const char*>(id.data()), size};
}
template <size_t size>
std::string Hex(const std::array<uint8_t, size>& id) {
  return absl::BytesToHexString({reinterpret_cast<const char*>(id.data()), size});
}

// Neither is ever all zeros. Thread-safe.
TraceId RandomTraceId();
SpanId RandomSpanId();

}  // namespace deepencoder
