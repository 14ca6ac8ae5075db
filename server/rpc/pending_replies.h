// Replies that are made and that their clients have not taken yet: bounded in time and in bytes, since
// a client that does not read would otherwise keep their memory for as long as it stays connected.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string_view>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "server/engine/mutex.h"

namespace deepencoder {

struct PendingReplyLimits {
  // How long a call may go without its client taking a whole reply; infinite: no bound.
  absl::Duration timeout = absl::InfiniteDuration();
  int64_t bytes = INT64_MAX;  // of all calls together; the one that has waited longest goes first
};

// Thread-safe. Time is SteadyNow's.
class PendingReplies {
 public:
  // Told of each call that is given up, and why ("time" or "bytes").
  using GivenUp = std::function<void(std::string_view why)>;

  PendingReplies(const PendingReplyLimits& limits, GivenUp given_up);
  ~PendingReplies();  // no call may be left
  PendingReplies(const PendingReplies&) = delete;
  PendingReplies& operator=(const PendingReplies&) = delete;

  // `call` has a reply of `bytes` more to send. `cancel` ends the call; it is called at most once, under
  // a lock, until Remove, and must not call this object.
  void Add(const void* call, int64_t bytes, std::function<void()> cancel);
  // The client has taken `bytes` of what was added: the time starts anew.
  void Taken(const void* call, int64_t bytes);
  // The call is over, whether it was ever added or not.
  void Remove(const void* call);

 private:
  using Waiting = std::pair<absl::Time, const void*>;  // since when
  struct Call {
    absl::Time since;
    int64_t bytes = 0;
    std::function<void()> cancel;  // null once called
  };

  void Run();
  // Sees to it that the thread looks in time at a call that waits since then. That it is not woken for each
  // reply saves every one the time: almost all are taken long before their time is over.
  void WakeFor(absl::Time since) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void GiveUp(Waiting which, std::string_view why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void KeepBytes() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const PendingReplyLimits limits_;
  const GivenUp given_up_;
  Mutex mutex_;
  CondVar changed_;
  std::map<const void*, Call> calls_ ABSL_GUARDED_BY(mutex_);
  std::set<Waiting> waiting_ ABSL_GUARDED_BY(mutex_);  // calls that were not given up
  int64_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;          // of those in waiting_
  absl::Time next_look_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteFuture();  // of the thread's
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace deepencoder
