#include "server/metrics/trace_metrics.h"

#include "server/metrics/family.h"

namespace deepencoder {

std::vector<prometheus::MetricFamily> TraceMetrics::Collect() const {
  if (exporter_ == nullptr) return {};
  const OtlpCounts counts = exporter_->counts();
  prometheus::MetricFamily spans = MakeFamily(MetricId::kTraceSpans);
  AddSample(spans, static_cast<double>(counts.sent), {{"result", "sent"}});
  AddSample(spans, static_cast<double>(counts.queue_full), {{"result", "queue_full"}});
  AddSample(spans, static_cast<double>(counts.failed), {{"result", "failed"}});
  return {spans};
}

}  // namespace deepencoder
