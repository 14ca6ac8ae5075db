// When to come back: a hint that travels with a RESOURCE_EXHAUSTED or UNAVAILABLE status as a payload,
// so that this layer needs no protobuf. The RPC layer turns it into google.rpc.RetryInfo.
#pragma once

#include <optional>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace deepencoder {

// Type URL of the payload: whole milliseconds in decimal.
inline constexpr char kRetryAfterUrl[] = "deepencoder/retry_after_ms";

absl::Status WithRetryAfter(absl::Status status, absl::Duration delay);

// Nothing if the status carries no hint.
std::optional<absl::Duration> RetryAfter(const absl::Status& status);

}  // namespace deepencoder
