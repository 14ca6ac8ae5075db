// Device memory, asked of the backends when Prometheus scrapes.
#pragma once

#include <prometheus/collectable.h>

#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "encoder/backend/backend.h"
#include "server/engine/mutex.h"

namespace deepencoder {

class BackendMemory final : public prometheus::Collectable {
 public:
  // Backends that no longer exist are left out.
  void SetBackends(std::vector<std::weak_ptr<const Backend>> backends);
  std::vector<prometheus::MetricFamily> Collect() const override;

 private:
  mutable Mutex mutex_;
  std::vector<std::weak_ptr<const Backend>> backends_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace deepencoder
