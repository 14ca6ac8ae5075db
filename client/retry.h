// Whether and when a failed call is tried again.
#pragma once

#include <grpcpp/support/status.h>

#include <optional>

#include "absl/time/time.h"
#include "client/client.h"

namespace deepencoder::client {

// The server's hint (google.rpc.RetryInfo in the status details), if it gave one.
std::optional<absl::Duration> RetryDelayOf(const grpc::Status& status);

// One call's attempts. Not thread-safe.
class Attempts {
 public:
  explicit Attempts(const RetryPolicy& policy) : policy_(policy) {}

  // How long to wait before the next attempt; nothing if there is none: the error would come again, the
  // attempts are used up, or `deadline` would pass first. `hint` is the server's.
  std::optional<absl::Duration> DelayAfter(grpc::StatusCode code,
                                           std::optional<absl::Duration> hint, absl::Time deadline);
  // Something worked: counts from the start again.
  void Reset() { failed_ = 0; }

 private:
  const RetryPolicy policy_;
  int failed_ = 0;
};

}  // namespace deepencoder::client
