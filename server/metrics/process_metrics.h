// What the kernel says of this process, read when Prometheus scrapes.
#pragma once

#include <prometheus/collectable.h>

#include <vector>

namespace deepencoder {

class ProcessMetrics final : public prometheus::Collectable {
 public:
  // Without families for what cannot be read, such as while the process has no descriptor left.
  std::vector<prometheus::MetricFamily> Collect() const override;
};

// Seconds since this process was started.
double ProcessAge();

}  // namespace deepencoder
