// Results of `deepencoder bench` as text tables.
#pragma once

#include <optional>
#include <string>

#include "client/bench_result.h"

namespace deepencoder::client {

// Marks text for a terminal; leaves it as it is elsewhere.
struct Style {
  bool colours = false;
  std::string Bold(const std::string& text) const;
  std::string Good(const std::string& text) const;
  std::string Bad(const std::string& text) const;
};

// What is measured, before any point of it.
std::string HeadText(const BenchResult& result, const Style& style);
// The main table: its first line, and a line a point, to be printed as each is done.
std::string PointHeader(bool open_loop, const Style& style);
std::string PointLine(const BenchPoint& point, const Style& style);
// After all points: stages, modes if there are several, bytes, errors, and what to beware of.
std::string DetailText(const BenchResult& result, const Style& style);

struct Comparison {
  std::string text;
  int points = 0;  // that both have
  // Largest loss of throughput and growth of the p99 latency among them, as shares of A's; 0: none.
  double worst_loss = 0, worst_growth = 0;
};
// B against A, point by point. Warns where they did not measure the same thing.
Comparison Compare(const BenchResult& a, const BenchResult& b, const Style& style);

}  // namespace deepencoder::client
