// Text of option values -> values: numbers, sizes, durations, lists. Errors say what was expected.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace deepencoder {

// Decimal integer in [min, max].
absl::StatusOr<int64_t> ParseInteger(std::string_view text, int64_t min, int64_t max);

// A number of bytes: "1048576", "512KiB", "32MiB", "2GiB" (powers of 1024), in [min, max].
absl::StatusOr<int64_t> ParseBytes(std::string_view text, int64_t min, int64_t max);

// "250us", "1.5ms", "30s", "2m", "1h" or "0", in [min, max].
absl::StatusOr<absl::Duration> ParseDuration(std::string_view text, absl::Duration min,
                                             absl::Duration max);

// A decimal number from 0 to 1, such as 0.25.
absl::StatusOr<double> ParseShare(std::string_view text);

// true, false, on, off, yes, no, 1, 0.
absl::StatusOr<bool> ParseBool(std::string_view text);

// Comma-separated; blanks around items are dropped, empty items refused. "" is the empty list.
absl::StatusOr<std::vector<std::string>> ParseList(std::string_view text);

// 33554432 -> "32 MiB"; exact sizes only get a unit.
std::string FormatBytes(int64_t bytes);

// Whether only this machine's processes can reach the address: unix:PATH, or HOST:PORT with a loopback
// address or localhost.
bool IsLocalAddress(std::string_view address);

}  // namespace deepencoder
