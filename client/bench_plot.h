// Latency against throughput as an SVG picture.
#pragma once

#include <string>
#include <vector>

#include "client/bench_result.h"

namespace deepencoder::client {

struct PlotSeries {
  std::string label;
  const BenchResult* result;
};

// A line of p50 and a dashed one of p99 for each series, points marked with their pace.
std::string LatencyPlot(const std::vector<PlotSeries>& series);

// Round numbers (1, 2 or 5 times a power of ten apart) from 0 to the first one not below `max`; at
// most about `count` of them. max > 0.
std::vector<double> RoundTicks(double max, int count);
// For a logarithmic axis: 1, 2 and 5 times powers of ten, from the last not above `min` to the
// first not below `max`. 0 < min <= max.
std::vector<double> LogTicks(double min, double max);

}  // namespace deepencoder::client
