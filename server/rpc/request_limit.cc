#include "server/rpc/request_limit.h"

#include "absl/strings/str_cat.h"
#include "server/engine/retry_hint.h"

namespace deepencoder {

RequestLimit::RequestLimit(int64_t most, EngineObserver* observer, const Clock* clock)
    : most_(most), observer_(observer), clock_(clock) {}

absl::StatusOr<RequestLimit::Place> RequestLimit::Take(RequestLimit* limit) {
  if (limit == nullptr) return Place();
  absl::Duration delay;
  {
    const MutexLock lock(limit->mutex_);
    if (limit->taken_ < limit->most_) {
      ++limit->taken_;
      return Place(limit, {limit->clock_->Now()});
    }
    delay = limit->stay_.RetryDelay();
  }
  limit->observer_->OnReject(RejectReason::kRequests);
  return WithRetryAfter(
      absl::ResourceExhaustedError(absl::StrCat("the server is full (limit: ", limit->most_,
                                                " requests in flight); retry later")),
      delay);
}

void RequestLimit::Release(absl::Time taken) {
  const double stay = SecondsBetween(taken, clock_->Now());
  const MutexLock lock(mutex_);
  --taken_;
  stay_.Add(stay);
}

}  // namespace deepencoder
