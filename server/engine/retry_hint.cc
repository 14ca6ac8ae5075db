#include "server/engine/retry_hint.h"

#include <algorithm>
#include <cstdint>
#include <string>

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace deepencoder {

absl::Status WithRetryAfter(absl::Status status, absl::Duration delay) {
  const int64_t milliseconds = std::max<int64_t>(1, absl::ToInt64Milliseconds(delay));
  status.SetPayload(kRetryAfterUrl, absl::Cord(absl::StrCat(milliseconds)));
  return status;
}

std::optional<absl::Duration> RetryAfter(const absl::Status& status) {
  const auto payload = status.GetPayload(kRetryAfterUrl);
  int64_t milliseconds = 0;
  if (!payload || !absl::SimpleAtoi(std::string(*payload), &milliseconds)) return std::nullopt;
  return absl::Milliseconds(milliseconds);
}

}  // namespace deepencoder
