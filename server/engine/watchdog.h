// Calls into a backend that have to return within a bounded time. One that does not cannot be ended, but
// those who wait for it can be told.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "server/engine/clock.h"
#include "server/engine/mutex.h"

namespace deepencoder {

// Thread-safe.
class Watchdog {
 public:
  // `timeout`: of every call; infinite: nothing is watched. `clock` must outlive this.
  // Throws std::system_error if there is no thread to be had.
  Watchdog(absl::Duration timeout, const Clock* clock);
  ~Watchdog();  // after every Call
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  absl::Duration timeout() const { return timeout_; }

  // From here to End (or its own end) a call is under way.
  class Call {
   public:
    // `on_late` is called once if the call takes longer than the timeout, on the watchdog's thread,
    // without locks held; it must be quick.
    Call(Watchdog* watchdog, std::function<void()> on_late);
    ~Call() { End(); }
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

    // True if on_late was called: it has returned, or never begins.
    bool End();

   private:
    Watchdog* const watchdog_;
    uint64_t id_ = 0;
    bool ended_ = false, late_ = false;
  };

 private:
  struct Entry {
    absl::Time due;
    std::function<void()> on_late;
  };

  void Run();
  // False if the call was told of; waits until on_late has returned.
  bool Forget(uint64_t id);

  const absl::Duration timeout_;
  const Clock* const clock_;

  Mutex mutex_;
  CondVar changed_, told_;
  uint64_t calls_begun_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<uint64_t, Entry> calls_
      ABSL_GUARDED_BY(mutex_);                    // in the order of their begin, so by due
  uint64_t telling_ ABSL_GUARDED_BY(mutex_) = 0;  // whose on_late runs; 0: none's
  bool asleep_ ABSL_GUARDED_BY(mutex_) = false;   // the thread, until it is notified
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace deepencoder
