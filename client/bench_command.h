// `deepencoder bench`: measures a running server, and compares measurements.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "client/client.h"

namespace deepencoder::client {

// `args` are the words after "bench". Returns the exit status (commands.h).
int RunBench(const std::vector<std::string>& args);

// "gundam:3,base" -> gundam with weight 3, base with 1. Errors: INVALID_ARGUMENT naming the part.
absl::StatusOr<std::vector<std::pair<Mode, double>>> ParseMix(const std::string& text);
// "1,2,4" -> numbers over 0, each at most `max`; `whole`: without fractions. Errors: as above.
absl::StatusOr<std::vector<double>> ParseNumbers(const std::string& text, double max, bool whole);
// "1240x1754,640x480" -> widths and heights, 1 to 20000. Errors: as above.
absl::StatusOr<std::vector<std::pair<int, int>>> ParseSizes(const std::string& text);

}  // namespace deepencoder::client
