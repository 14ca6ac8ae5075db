// What a run of `deepencoder bench` found, and its JSON file.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/bench_stats.h"

namespace deepencoder::client {

struct BenchResult {
  // Of the server.
  std::string server, model, device, version, commit;
  bool synthetic = false;  // its weights
  // Of the load: what two runs must have in common to be compared.
  std::string mix;     // "gundam:1, base:3"
  std::string images;  // "3 files (a.png, b.png, c.jpg)"
  std::string dtype;
  std::string limits;  // "10s a point after 2s of warm-up"
  std::vector<BenchPoint> points;
};

std::string ToJson(const BenchResult& result);

// Errors: INVALID_ARGUMENT if it is not such a file (says what is missing).
absl::StatusOr<BenchResult> ParseBenchResult(std::string_view json);
// As above, from a file; errors start with the path. NOT_FOUND: no such file.
absl::StatusOr<BenchResult> ReadBenchResult(const std::string& path);

// "concurrency 8" or "rate 12.5".
std::string PaceText(const Pace& pace);

}  // namespace deepencoder::client
