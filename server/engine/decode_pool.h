// A fixed number of threads for the work before a slot: decoding files and rendering views.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "server/engine/engine.h"
#include "server/engine/mutex.h"
#include "server/engine/request.h"

namespace deepencoder {

// `wanted`, or one for each processor that the process may use if that is 0.
int DecodeThreadCount(int wanted);

// Thread-safe. Serves the request that is due first (DueTime), then first come. Its queue is bounded by
// admission.
class DecodePool {
 public:
  using Work = std::function<void(const std::shared_ptr<Request>&)>;

  // `threads` >= 1. `work` is called on them, one request at a time a thread.
  // Throws std::system_error if a thread is not to be had.
  DecodePool(int threads, EngineObserver* observer, Work work);
  ~DecodePool();  // Stop

  // False, and nothing is done, after Stop.
  bool Submit(std::shared_ptr<Request> request, absl::Time due);

  // Whether a request waits for a thread.
  bool HasWaiting() const;

  // What waits for a thread, which it then does no more.
  std::vector<std::shared_ptr<Request>> TakeWaiting();

  // Ends the threads after what they are at, and returns what was still waiting.
  std::vector<std::shared_ptr<Request>> Stop();

 private:
  void Run(int index);

  EngineObserver* const observer_;
  const int thread_count_;
  const Work work_;

  mutable Mutex mutex_;
  CondVar changed_;
  std::map<std::pair<absl::Time, uint64_t>, std::shared_ptr<Request>> waiting_
      ABSL_GUARDED_BY(mutex_);
  uint64_t submitted_ ABSL_GUARDED_BY(mutex_) = 0;
  int busy_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace deepencoder
