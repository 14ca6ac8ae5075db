// SIGTERM and SIGINT: the first asks for a clean stop, the second ends the process at once. SIGHUP asks for
// a reload of the weights.
#pragma once

#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "server/engine/mutex.h"
#include "server/log.h"

namespace deepencoder {

// Make it before any other thread: threads inherit the blocked signals. One a process.
class Signals {
 public:
  enum class Event : uint8_t { kNone, kReload, kStop };

  explicit Signals(const Logger* logger);  // `logger` must live as long as the process
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

  // From now on the first signal is the caller's to handle. Before, while there is nothing to drain, a
  // stop ends the process with status 0; a reload is kept.
  void HandOver();

  // What was asked for, a stop before a reload; kNone after `timeout`. Reloads asked for since the last
  // one was told are one.
  Event WaitFor(absl::Duration timeout);

 private:
  void Run();

  const Logger* const logger_;
  Mutex mutex_;
  CondVar changed_;
  bool handed_over_ ABSL_GUARDED_BY(mutex_) = false;
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  bool reload_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace deepencoder
