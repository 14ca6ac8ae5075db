// The time the engine goes by; tests inject their own.
#pragma once

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace deepencoder {

class Clock {
 public:
  virtual ~Clock() = default;
  // Thread-safe. Comparable with EncodeJob::deadline, so it is the wall clock: it may be set back, and
  // differences of two readings may be negative.
  virtual absl::Time Now() const = 0;
};

class WallClock final : public Clock {
 public:
  absl::Time Now() const override { return absl::Now(); }
};

// Seconds from `start` to `end`; 0 if the clock was set back between.
inline double SecondsBetween(absl::Time start, absl::Time end) {
  return end > start ? absl::ToDoubleSeconds(end - start) : 0.0;
}

}  // namespace deepencoder
