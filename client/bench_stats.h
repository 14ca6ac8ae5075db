// Numbers of a load run: exact, from every sample.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "client/bench_load.h"

namespace deepencoder::client {

// Percentiles by nearest rank: the least sample that at least that share of the samples does not
// exceed. All 0 without samples.
struct Distribution {
  int64_t count = 0;
  double mean = 0, min = 0, p50 = 0, p90 = 0, p99 = 0, p999 = 0, max = 0;
  bool operator==(const Distribution&) const = default;
};
Distribution Summarise(std::vector<double> samples);

// Stages in the server, then the whole of it, then what lies outside: network, client and, in an
// open loop, the wait for being sent.
inline constexpr std::array<std::string_view, 7> kStages = {
    "decode", "views", "queue", "compute", "assemble", "server", "outside"};

// One pace's outcome. Latencies and stages in seconds, of good answers only.
struct BenchPoint {
  Pace pace;
  double seconds = 0;  // of the window
  int64_t images = 0;  // good answers to counted requests
  double images_per_second = 0, tokens_per_second = 0;
  Distribution latency;
  std::map<std::string, Distribution> latency_by_mode;
  std::array<Distribution, kStages.size()> stages;
  std::map<std::string, int64_t> errors;        // by status code
  uint64_t bytes_sent = 0, bytes_received = 0;  // images and rows of counted requests
  int peak_outstanding = 0;
  int64_t unsent = 0;

  int64_t failed() const;
};

BenchPoint Evaluate(const LoadRun& run, const std::vector<WorkItem>& items);

}  // namespace deepencoder::client
