// The sum over the queues of all devices, as the observer hears it.
#pragma once

#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "server/engine/engine.h"
#include "server/engine/mutex.h"

namespace deepencoder {

// Thread-safe. Tells the observer under its lock, so the last value heard is the latest.
class QueueGauge {
 public:
  explicit QueueGauge(EngineObserver* observer) : observer_(observer) {}

  void Add(int64_t items, int64_t bytes) {
    if (items == 0 && bytes == 0) return;
    MutexLock lock(mutex_);
    items_ += items;
    bytes_ += bytes;
    observer_->OnQueue(items_, bytes_);
  }

 private:
  EngineObserver* const observer_;
  Mutex mutex_;
  int64_t items_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace deepencoder
