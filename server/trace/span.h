// A piece of work in a trace, done.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/time/time.h"
#include "server/trace/trace_context.h"

namespace deepencoder {

struct Span {
  enum class Kind : uint8_t { kInternal, kServer };
  using Attribute = std::pair<std::string, std::variant<std::string, int64_t, double, bool>>;

  TraceContext context;
  SpanId parent{};             // zeros: the trace's root
  bool remote_parent = false;  // in another process
  std::string trace_state;
  std::string name;
  Kind kind = Kind::kInternal;
  absl::Time begin, end;
  std::vector<Attribute> attributes;
  bool failed = false;
  std::string message;  // of the failure
};

// Takes spans. Thread-safe, and never waits: who records a span has a call to answer.
class SpanSink {
 public:
  virtual ~SpanSink() = default;
  virtual void Add(std::vector<Span> spans) = 0;
};

}  // namespace deepencoder
