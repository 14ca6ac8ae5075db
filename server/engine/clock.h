// The time the engine goes by; tests inject their own.
#pragma once

#include <chrono>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace deepencoder {

class Clock {
 public:
  virtual ~Clock() = default;
  // Thread-safe. Comparable with EncodeJob::deadline.
  virtual absl::Time Now() const = 0;
};

// What the wall clock said when the process first asked, and the time that has passed since: never set
// back or forward, so that somebody who sets the machine's clock ends no request.
inline absl::Time SteadyNow() {
  struct Start {
    absl::Time wall = absl::Now();
    std::chrono::steady_clock::time_point steady = std::chrono::steady_clock::now();
  };
  static const Start start;
  return start.wall + absl::FromChrono(std::chrono::steady_clock::now() - start.steady);
}

// A time of the wall clock, such as gRPC's deadlines, as one of SteadyNow. Infinite ones stay.
inline absl::Time ToSteady(absl::Time wall) { return SteadyNow() + (wall - absl::Now()); }

class SteadyClock final : public Clock {
 public:
  absl::Time Now() const override { return SteadyNow(); }
};

// Seconds from `start` to `end`, not less than 0.
inline double SecondsBetween(absl::Time start, absl::Time end) {
  return end > start ? absl::ToDoubleSeconds(end - start) : 0.0;
}

}  // namespace deepencoder
