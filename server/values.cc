#include "server/values.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace deepencoder {
namespace {

std::string Quoted(std::string_view text) { return "'" + std::string(text) + "'"; }

std::string_view Trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

// The whole of `text` as a number of type T.
template <typename T>
std::optional<T> WholeNumber(std::string_view text) {
  T value{};
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end) return std::nullopt;
  return value;
}

}  // namespace

absl::StatusOr<int64_t> ParseInteger(std::string_view text, int64_t min, int64_t max) {
  const std::optional<int64_t> value = WholeNumber<int64_t>(text);
  if (!value) {
    return absl::InvalidArgumentError(absl::StrCat(Quoted(text), " is not a whole number"));
  }
  if (*value < min || *value > max) {
    return absl::InvalidArgumentError(
        absl::StrCat(Quoted(text), " is out of range: expected ", min, " to ", max));
  }
  return *value;
}

absl::StatusOr<double> ParseShare(std::string_view text) {
  const std::optional<double> value = WholeNumber<double>(text);
  if (value && *value >= 0 && *value <= 1) return *value;  // NaN is neither
  return absl::InvalidArgumentError(
      absl::StrCat(Quoted(text), " is not a share: expected a number from 0 to 1"));
}

absl::StatusOr<int64_t> ParseBytes(std::string_view text, int64_t min, int64_t max) {
  static constexpr std::pair<std::string_view, int> kUnits[] = {
      {"KiB", 10}, {"MiB", 20}, {"GiB", 30}, {"TiB", 40}, {"B", 0}};
  std::string_view digits = text;
  int shift = 0;
  for (const auto& [unit, unit_shift] : kUnits) {
    if (text.ends_with(unit)) {
      digits = text.substr(0, text.size() - unit.size());
      shift = unit_shift;
      break;
    }
  }
  const std::optional<int64_t> count = WholeNumber<int64_t>(digits);
  if (!count || *count < 0 || *count > (INT64_MAX >> shift)) {
    return absl::InvalidArgumentError(absl::StrCat(
        Quoted(text), " is not a size: expected bytes, or a number with KiB, MiB or GiB"));
  }
  const int64_t bytes = *count << shift;
  if (bytes < min || bytes > max) {
    return absl::InvalidArgumentError(absl::StrCat(Quoted(text), " is out of range: expected ",
                                                   FormatBytes(min), " to ", FormatBytes(max)));
  }
  return bytes;
}

absl::StatusOr<absl::Duration> ParseDuration(std::string_view text, absl::Duration min,
                                             absl::Duration max) {
  static constexpr std::pair<std::string_view, double> kUnits[] = {
      {"us", 1e-6}, {"ms", 1e-3}, {"s", 1.0}, {"m", 60.0}, {"h", 3600.0}};
  std::optional<double> seconds;
  if (text == "0") seconds = 0.0;
  for (const auto& [unit, scale] : kUnits) {
    if (seconds || !text.ends_with(unit)) continue;
    const auto count = WholeNumber<double>(text.substr(0, text.size() - unit.size()));
    if (count) seconds = *count * scale;
  }
  if (!seconds || !std::isfinite(*seconds)) {
    return absl::InvalidArgumentError(absl::StrCat(
        Quoted(text), " is not a duration: expected a number with us, ms, s, m or h, or 0"));
  }
  const absl::Duration duration = absl::Seconds(*seconds);
  if (duration < min || duration > max) {
    return absl::InvalidArgumentError(absl::StrCat(Quoted(text), " is out of range: expected ",
                                                   absl::FormatDuration(min), " to ",
                                                   absl::FormatDuration(max)));
  }
  return duration;
}

absl::StatusOr<bool> ParseBool(std::string_view text) {
  if (text == "true" || text == "on" || text == "yes" || text == "1") return true;
  if (text == "false" || text == "off" || text == "no" || text == "0") return false;
  return absl::InvalidArgumentError(
      absl::StrCat(Quoted(text), " is not a switch: expected true or false"));
}

absl::StatusOr<std::vector<std::string>> ParseList(std::string_view text) {
  std::vector<std::string> items;
  if (Trimmed(text).empty()) return items;
  while (true) {
    const size_t comma = text.find(',');
    const std::string_view item = Trimmed(text.substr(0, comma));
    if (item.empty()) return absl::InvalidArgumentError("the list has an empty item");
    items.emplace_back(item);
    if (comma == std::string_view::npos) return items;
    text.remove_prefix(comma + 1);
  }
}

std::string FormatBytes(int64_t bytes) {
  static constexpr std::pair<const char*, int> kUnits[] = {
      {"TiB", 40}, {"GiB", 30}, {"MiB", 20}, {"KiB", 10}};
  for (const auto& [unit, shift] : kUnits) {
    if (bytes != 0 && bytes % (int64_t{1} << shift) == 0) {
      return absl::StrCat(bytes >> shift, " ", unit);
    }
  }
  return absl::StrCat(bytes, " bytes");
}

bool IsLocalAddress(std::string_view address) {
  if (address.starts_with("unix:")) return true;
  const std::string_view host = address.substr(0, address.rfind(':'));
  if (host == "[::1]" || host == "localhost") return true;
  // 127.0.0.0/8, as four numbers: a name may begin as it likes.
  const bool numeric = host.find_first_not_of("0123456789.") == std::string_view::npos;
  return numeric && host.starts_with("127.") && std::count(host.begin(), host.end(), '.') == 3;
}

}  // namespace deepencoder
