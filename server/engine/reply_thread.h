// A thread that delivers answers, so that slots go on to their next batch at once.
#pragma once

#include <functional>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "server/engine/mutex.h"

namespace deepencoder {

// Thread-safe.
class ReplyThread {
 public:
  ReplyThread();
  ~ReplyThread();  // Stop

  // Runs `deliver` soon, in the order of calls. Not after Stop.
  void Post(std::function<void()> deliver);
  // Runs what was posted, and ends the thread.
  void Stop();

 private:
  void Run();

  Mutex mutex_;
  CondVar changed_;
  std::vector<std::function<void()>> posted_ ABSL_GUARDED_BY(mutex_);
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace deepencoder
