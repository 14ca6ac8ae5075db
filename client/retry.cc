#include "client/retry.h"

#include <algorithm>
#include <cmath>
#include <random>

#include "absl/time/clock.h"
#include "deepencoder/wire/rpc_status.pb.h"

namespace deepencoder::client {
namespace {

// Clients that failed together should not come back together, and none before its time.
double Jitter() {
  thread_local std::mt19937 generator{std::random_device{}()};
  return std::uniform_real_distribution<double>(1.0, 1.5)(generator);
}

}  // namespace

std::optional<absl::Duration> RetryDelayOf(const grpc::Status& status) {
  wire::RpcStatus details;
  if (status.error_details().empty() || !details.ParseFromString(status.error_details())) {
    return std::nullopt;
  }
  for (const google::protobuf::Any& detail : details.details()) {
    wire::RetryInfo retry;
    if (detail.type_url() != "type.googleapis.com/google.rpc.RetryInfo" ||
        !retry.ParseFromString(detail.value())) {
      continue;
    }
    return absl::Seconds(retry.retry_delay().seconds()) +
           absl::Nanoseconds(retry.retry_delay().nanos());
  }
  return std::nullopt;
}

std::optional<absl::Duration> Attempts::DelayAfter(grpc::StatusCode code,
                                                   std::optional<absl::Duration> hint,
                                                   absl::Time deadline) {
  // Without a hint RESOURCE_EXHAUSTED means an image over a limit, which stays over it.
  const bool may_pass = code == grpc::StatusCode::UNAVAILABLE ||
                        (code == grpc::StatusCode::RESOURCE_EXHAUSTED && hint.has_value());
  if (!may_pass || ++failed_ >= policy_.max_attempts) return std::nullopt;
  const absl::Duration doubled =
      std::min(policy_.max_delay, policy_.first_delay * std::pow(2.0, std::min(failed_ - 1, 30)));
  const absl::Duration delay = std::max(hint.value_or(absl::ZeroDuration()), doubled) * Jitter();
  if (absl::Now() + delay >= deadline) return std::nullopt;
  return delay;
}

}  // namespace deepencoder::client
