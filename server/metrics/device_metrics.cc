#include "server/metrics/device_metrics.h"

#include "server/metrics/family.h"

namespace deepencoder {

std::vector<prometheus::MetricFamily> DeviceMetrics::Collect() const {
  prometheus::MetricFamily current = MakeFamily(MetricId::kDeviceMemory);
  prometheus::MetricFamily peak = MakeFamily(MetricId::kDeviceMemoryPeak);
  for (const DeviceMemory& memory : source_()) {
    for (const MemoryUse& use : memory.use) {
      AddSample(current, static_cast<double>(use.current),
                {{"device", memory.device}, {"kind", use.kind}});
      AddSample(peak, static_cast<double>(use.peak),
                {{"device", memory.device}, {"kind", use.kind}});
    }
  }
  return {current, peak};
}

}  // namespace deepencoder
