// SIGTERM and SIGINT: the first asks for a clean stop, the second ends the process at once.
#pragma once

#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "server/engine/mutex.h"
#include "server/log.h"

namespace deepencoder {

// Make it before any other thread: threads inherit the blocked signals. One a process.
class StopSignals {
 public:
  explicit StopSignals(const Logger* logger);  // `logger` must live as long as the process
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  // From now on the first signal is the caller's to handle. Before, while there is nothing to drain, it
  // ends the process with status 0.
  void HandOver();

  // True once a stop was asked for; false after `timeout`.
  bool WaitFor(absl::Duration timeout);

 private:
  void Run();

  const Logger* const logger_;
  Mutex mutex_;
  CondVar changed_;
  bool handed_over_ ABSL_GUARDED_BY(mutex_) = false;
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace deepencoder
