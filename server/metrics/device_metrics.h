// Device memory, asked of the backends when Prometheus scrapes.
#pragma once

#include <prometheus/collectable.h>

#include <functional>
#include <string>
#include <vector>

#include "encoder/backend/backend.h"

namespace deepencoder {

struct DeviceMemory {
  std::string device;  // label
  std::vector<MemoryUse> use;
};

class DeviceMetrics final : public prometheus::Collectable {
 public:
  // Called on each scrape, from the exposition's threads; must not wait for the device.
  using Source = std::function<std::vector<DeviceMemory>()>;
  explicit DeviceMetrics(Source source) : source_(std::move(source)) {}
  std::vector<prometheus::MetricFamily> Collect() const override;

 private:
  const Source source_;
};

}  // namespace deepencoder
