#include "server/engine/admission.h"

#include "absl/strings/str_cat.h"
#include "server/engine/retry_hint.h"

namespace deepencoder {

Admission::Admission(const AdmissionLimits& limits, EngineObserver* observer, const Clock* clock)
    : limits_(limits), observer_(observer), clock_(clock) {}

absl::Status Admission::Reject(RejectReason reason, absl::Status status) const {
  observer_->OnReject(reason);
  return status;
}

absl::Status Admission::Admit(const Charge& charge) {
  if (charge.bytes > limits_.bytes) {
    return Reject(RejectReason::kBytes,
                  absl::ResourceExhaustedError(absl::StrCat(
                      "this image may need ", charge.bytes,
                      " bytes while it is encoded; the server "
                      "allows ",
                      limits_.bytes, " for all images in flight, so it can never fit")));
  }
  if (charge.views > limits_.views) {
    return Reject(RejectReason::kViews,
                  absl::ResourceExhaustedError(absl::StrCat(
                      "this image has ", charge.views, " views; the server queues at most ",
                      limits_.views, ", so it can never fit")));
  }
  RejectReason reason{};
  std::string limit;
  {
    MutexLock lock(mutex_);
    if (closed_) {
      reason = RejectReason::kDraining;
    } else if (images_ + 1 > limits_.images) {
      reason = RejectReason::kImages;
      limit = absl::StrCat(limits_.images, " images");
    } else if (bytes_ + charge.bytes > limits_.bytes) {
      reason = RejectReason::kBytes;
      limit = absl::StrCat(limits_.bytes, " bytes");
    } else if (views_ + charge.views > limits_.views) {
      reason = RejectReason::kViews;
      limit = absl::StrCat(limits_.views, " views");
    } else {
      ++images_;
      ++unanswered_;
      bytes_ += charge.bytes;
      views_ += charge.views;
      Tell();
      return absl::OkStatus();
    }
  }
  if (reason == RejectReason::kDraining) {
    return Reject(reason, absl::UnavailableError("the server is shutting down"));
  }
  return Reject(
      reason, WithRetryAfter(absl::ResourceExhaustedError(absl::StrCat(
                                 "the server is full (limit: ", limit, " in flight); retry later")),
                             RetryDelay()));
}

void Admission::Resize(Charge* held, int64_t bytes) {
  MutexLock lock(mutex_);
  bytes_ += bytes - held->bytes;
  held->bytes = bytes;
  Tell();
}

void Admission::Release(const Charge& held, absl::Time admitted) {
  const double stay = SecondsBetween(admitted, clock_->Now());
  MutexLock lock(mutex_);
  --images_;
  bytes_ -= held.bytes;
  views_ -= held.views;
  stay_.Add(stay);
  Tell();
}

void Admission::Answered() {
  MutexLock lock(mutex_);
  if (--unanswered_ == 0) idle_.NotifyAll();
}

void Admission::Close() {
  MutexLock lock(mutex_);
  closed_ = true;
}

bool Admission::AwaitIdle(absl::Time deadline) {
  MutexLock lock(mutex_);
  while (unanswered_ > 0) {
    const absl::Time now = clock_->Now();
    if (now >= deadline) return false;
    idle_.WaitFor(mutex_, deadline - now);
  }
  return true;
}

absl::Duration Admission::RetryDelay() const {
  MutexLock lock(mutex_);
  return stay_.RetryDelay();
}

void Admission::Tell() const { observer_->OnInFlight(images_, bytes_); }

}  // namespace deepencoder
