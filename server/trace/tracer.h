// Decides which calls are traced, and under which ids.
#pragma once

#include <string>
#include <string_view>

#include "server/trace/span.h"
#include "server/trace/trace_context.h"

namespace deepencoder {

// Thread-safe.
class Tracer {
 public:
  // `ratio`: of the calls that nobody has decided on before, the share that is kept, in [0, 1].
  // `sink` must outlive it.
  Tracer(double ratio, SpanSink* sink) : ratio_(ratio), sink_(sink) {}

  // The span of a call: a child of what `traceparent` names, and kept if that is (whatever the ratio);
  // else a root. Its name, times and kind are the caller's to set.
  Span Begin(std::string_view traceparent, std::string_view tracestate) const;
  // A span beneath `parent`, in this process.
  static Span Child(const Span& parent, std::string name, absl::Time begin, absl::Time end);

  void Record(std::vector<Span> spans) const { sink_->Add(std::move(spans)); }

 private:
  const double ratio_;
  SpanSink* const sink_;
};

}  // namespace deepencoder
