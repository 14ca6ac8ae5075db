// The bounds on what is in flight, looked at once, when a job arrives: whatever passes has its place in
// every later queue reserved and is never turned away by one.
#pragma once

#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "server/engine/clock.h"
#include "server/engine/engine.h"
#include "server/engine/mean_stay.h"
#include "server/engine/mutex.h"

namespace deepencoder {

struct AdmissionLimits {
  int64_t images = 1024;
  // Of files, of decoding them (an upper bound from their headers), of views and of replies. Not what
  // is resident: most admitted images wait as files. An image that alone needs more is never admitted.
  int64_t bytes = int64_t{4} << 30;
  // Bounds the batch queues. Must be at least the views of one image (max_tiles + 1).
  int64_t views = 4096;
};

// What one image holds from admission to answer.
struct Charge {
  int64_t bytes = 0;
  int64_t views = 0;
};

// Thread-safe. The observer's gauges are set under the lock, so the last value it hears is the latest.
class Admission {
 public:
  // `observer` and `clock` must outlive this.
  Admission(const AdmissionLimits& limits, EngineObserver* observer, const Clock* clock);

  // On OK the caller owes one Release and then one Answered.
  // Errors: UNAVAILABLE after Close; RESOURCE_EXHAUSTED, with a retry hint unless it can never fit.
  absl::Status Admit(const Charge& charge);
  // The image holds `bytes` from now on.
  void Resize(Charge* held, int64_t bytes);
  // Gives the place back; before the answer, so that a client's next request finds it free.
  void Release(const Charge& held, absl::Time admitted);
  // The answer has been delivered.
  void Answered();

  // Admits nothing from now on.
  void Close();
  // Waits until every admitted image is answered; false if `deadline` comes first.
  bool AwaitIdle(absl::Time deadline);

  // How long a client should wait before it tries again.
  absl::Duration RetryDelay() const;

 private:
  absl::Status Reject(RejectReason reason, absl::Status status) const;
  void Tell() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const AdmissionLimits limits_;
  EngineObserver* const observer_;
  const Clock* const clock_;

  mutable Mutex mutex_;
  CondVar idle_;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  int64_t images_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t views_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t unanswered_ ABSL_GUARDED_BY(mutex_) = 0;
  MeanStay stay_ ABSL_GUARDED_BY(mutex_);  // of an image
};

}  // namespace deepencoder
