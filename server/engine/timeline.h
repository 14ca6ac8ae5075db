// When the steps of one image began and ended, for whoever traces it.
#pragma once

#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "server/engine/mutex.h"

namespace deepencoder {

// Thread-safe.
class Timeline {
 public:
  struct Step {
    std::string_view name;  // static
    absl::Time begin, end;
  };

  void Add(std::string_view name, absl::Time begin, absl::Time end) {
    const MutexLock lock(mutex_);
    steps_.push_back({name, begin, end});
  }

  std::vector<Step> steps() const {
    const MutexLock lock(mutex_);
    return steps_;
  }

 private:
  mutable Mutex mutex_;
  std::vector<Step> steps_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace deepencoder
