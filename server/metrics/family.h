// One family of samples for a Collectable, named by the table.
#pragma once

#include <prometheus/metric_family.h>

#include <string>
#include <utility>
#include <vector>

#include "server/metrics/metric_table.h"

namespace deepencoder {

inline prometheus::MetricFamily MakeFamily(MetricId id) {
  const MetricSpec& spec = SpecOf(id);
  prometheus::MetricFamily family;
  family.name = spec.name;
  family.help = spec.help;
  family.type = spec.type == MetricType::kCounter ? prometheus::MetricType::Counter
                                                  : prometheus::MetricType::Gauge;
  return family;
}

// Counters and gauges only.
inline void AddSample(prometheus::MetricFamily& family, double value,
                      const std::vector<std::pair<std::string, std::string>>& labels = {}) {
  prometheus::ClientMetric& sample = family.metric.emplace_back();
  for (const auto& [name, text] : labels) sample.label.push_back({name, text});
  if (family.type == prometheus::MetricType::Counter) {
    sample.counter.value = value;
  } else {
    sample.gauge.value = value;
  }
}

}  // namespace deepencoder
