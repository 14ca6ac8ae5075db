#include "server/metrics/device_metrics.h"

#include <string>
#include <utility>

#include "server/metrics/family.h"

namespace deepencoder {

void BackendMemory::SetBackends(std::vector<std::weak_ptr<const Backend>> backends) {
  const MutexLock lock(mutex_);
  backends_ = std::move(backends);
}

std::vector<prometheus::MetricFamily> BackendMemory::Collect() const {
  prometheus::MetricFamily current = MakeFamily(MetricId::kDeviceMemory);
  prometheus::MetricFamily peak = MakeFamily(MetricId::kDeviceMemoryPeak);
  std::vector<std::weak_ptr<const Backend>> backends;
  {
    const MutexLock lock(mutex_);
    backends = backends_;
  }
  for (const std::weak_ptr<const Backend>& weak : backends) {
    const std::shared_ptr<const Backend> backend = weak.lock();
    if (backend == nullptr) continue;
    const std::string device = std::to_string(backend->info().device);
    for (const MemoryUse& use : backend->Memory()) {
      AddSample(current, static_cast<double>(use.current),
                {{"device", device}, {"kind", use.kind}});
      AddSample(peak, static_cast<double>(use.peak), {{"device", device}, {"kind", use.kind}});
    }
  }
  return {current, peak};
}

}  // namespace deepencoder
