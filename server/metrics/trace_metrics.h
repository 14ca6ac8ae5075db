// What became of the spans of traced calls.
#pragma once

#include <prometheus/collectable.h>

#include <memory>
#include <vector>

#include "server/trace/otlp_exporter.h"

namespace deepencoder {

class TraceMetrics final : public prometheus::Collectable {
 public:
  // Nothing is shown where `exporter` is null; else it must outlive this.
  explicit TraceMetrics(const OtlpExporter* exporter) : exporter_(exporter) {}

  std::vector<prometheus::MetricFamily> Collect() const override;

 private:
  const OtlpExporter* const exporter_;
};

}  // namespace deepencoder
