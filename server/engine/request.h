// One job on its way through the engine.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>

#include "absl/time/time.h"
#include "server/engine/admission.h"
#include "server/engine/content_key.h"
#include "server/engine/engine.h"

namespace deepencoder {

// How many views of each side.
using ViewCounts = std::map<int, int>;

// Owned by one stage at a time, and while its views are queued by nobody: then only `job`'s deadline and cancel
// flag, and what is atomic, may be looked at. Whoever ends that (ImageTask::Leave, or the last view) owns it.
struct Request {
  Request(EncodeJob job_in, EncodeDone done_in, absl::Time arrival_in)
      : job(std::move(job_in)), done(std::move(done_in)), arrival(arrival_in) {}

  // Why nobody waits for it any more, if so. Thread-safe.
  std::optional<DropReason> Gone(absl::Time now) const {
    if (job.cancel != nullptr && job.cancel->cancelled()) return DropReason::kCancelled;
    if (now >= job.deadline) return DropReason::kDeadline;
    return std::nullopt;
  }

  // True for the one caller who may, and must, call `done`. Thread-safe.
  bool ClaimAnswer() { return !answered_.exchange(true, std::memory_order_acq_rel); }
  bool answered() const { return answered_.load(std::memory_order_acquire); }

  const EncodeJob job;
  const EncodeDone done;
  const absl::Time arrival;
  Charge charge;
  ViewCounts views;               // at most, by its header
  absl::Time begun;               // when it left the decode pool's queue
  int64_t bytes_to_decode = 0;    // of `charge` at admission; again while the image is decoded anew
  std::optional<ContentKey> key;  // set once hashed
  bool leads = false;             // others may wait for this one's result (ResultCache)

 private:
  std::atomic<bool> answered_{false};
};

// When a request that waits since `since` counts as due: its deadline, but no later than `patience`
// from then. Queues serve the earliest first. Requests without a near deadline so wait in order, near
// ones overtake them, and nobody is overtaken for longer than `patience`.
inline absl::Time DueTime(absl::Time deadline, absl::Time since, absl::Duration patience) {
  return std::min(deadline, since + patience);
}

}  // namespace deepencoder
