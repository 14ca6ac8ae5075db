// How long what was let in stays, and so when who was turned away should come back: after the mean stay, what
// was in the way is gone.
#pragma once

#include <algorithm>

#include "absl/time/time.h"

namespace deepencoder {

// Not thread-safe.
class MeanStay {
 public:
  void Add(double seconds) { mean_ += kWeight * (seconds - mean_); }

  // Between 10 ms and 10 s.
  absl::Duration RetryDelay() const {
    return std::clamp(absl::Seconds(mean_), absl::Milliseconds(10), absl::Seconds(10));
  }

 private:
  static constexpr double kWeight = 0.05;  // of the newest: the last twenty or so count

  double mean_ = 0;  // seconds, exponentially weighted
};

}  // namespace deepencoder
