// How long something is likely to take, from how long it has lately taken.
#pragma once

#include <cmath>

#include "absl/time/time.h"

namespace deepencoder {

// Not thread-safe.
class LikelyTime {
 public:
  void Add(double seconds) {
    if (mean_ < 0) {
      mean_ = seconds;
      return;
    }
    deviation_ += kWeight * (std::abs(seconds - mean_) - deviation_);
    mean_ += kWeight * (seconds - mean_);
  }

  // Longer than most: the mean and twice the mean deviation. 0 before the first Add.
  absl::Duration Get() const {
    return mean_ < 0 ? absl::ZeroDuration() : absl::Seconds(mean_ + 2 * deviation_);
  }

 private:
  static constexpr double kWeight = 0.1;  // of the newest: the last ten or so count
  double mean_ = -1, deviation_ = 0;      // seconds; -1: none yet
};

}  // namespace deepencoder
