// The load generator of `deepencoder bench`: offers requests at a pace and keeps what came of each.
//
// Closed loop: a fixed number of requests is under way, each answer brings the next request. Open
// loop: requests arrive by a Poisson process whatever the server does, and a latency counts from
// the time the request was due, not from when it could be sent: a server that stalls cannot hide
// the requests that would have come meanwhile ("coordinated omission").
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "client/client.h"

namespace deepencoder::client {

// One kind of request.
struct WorkItem {
  std::string name;  // of the image
  std::shared_ptr<const Image> image;
  Mode mode = Mode::kGundam;
  double weight = 1;  // its share of the requests, relative to the others'; over 0
};

struct Answer {
  uint64_t ticket = 0;
  absl::Time finished;
  absl::StatusCode code = absl::StatusCode::kOk;
  int rows = 0;
  uint64_t bytes = 0;  // of the rows
  Timings timings;
};

// What load is put on, with its clock. Used by one thread.
class Target {
 public:
  virtual ~Target() = default;
  virtual absl::Time Now() = 0;
  // Starts a request; does not wait.
  virtual void Send(uint64_t ticket, const WorkItem& item) = 0;
  // The next answer in order of arrival, or nothing if none is there at `until`. Every request sent
  // is answered some time.
  virtual std::optional<Answer> Next(absl::Time until) = 0;
};

struct Pace {
  int concurrency = 0;  // closed loop: requests under way; 0: open loop
  double rate = 0;      // open loop: requests a second on average
};

struct LoadSettings {
  // Warm-up lasts until both have passed: this time, and this many answers.
  absl::Duration warmup = absl::Seconds(2);
  int64_t warmup_count = 0;
  // Requests are counted until either has passed; 0: no such limit (for one of them).
  absl::Duration duration = absl::Seconds(10);
  int64_t count = 0;
  int max_outstanding = 1000;  // open loop: requests under way at most; what is due then waits
  uint64_t seed = 1;           // of the arrival times and of the order of items
};

// A request that was due after warm-up.
struct Sample {
  size_t item = 0;
  absl::Time due, sent, finished;
  absl::StatusCode code = absl::StatusCode::kOk;
  int rows = 0;
  uint64_t bytes = 0;
  Timings timings;
};

struct LoadRun {
  Pace pace;
  absl::Time window_start, window_end;
  std::vector<Sample> samples;  // in order of their answers
  // Good answers and their rows within the window, also of requests that warm-up had sent: what the
  // throughput is made of.
  int64_t images_in_window = 0, rows_in_window = 0;
  int peak_outstanding = 0;
  int64_t unsent = 0;  // open loop: due in the window and never sent, for max_outstanding
};

// Returns when every request is answered. `items` are not empty.
LoadRun RunLoad(Target& target, const std::vector<WorkItem>& items, const Pace& pace,
                const LoadSettings& settings);

}  // namespace deepencoder::client
