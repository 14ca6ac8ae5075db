// Spans between the calls that made them and the thread that sends them. Full, it lets spans go.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "server/engine/mutex.h"
#include "server/trace/span.h"

namespace deepencoder {

// Thread-safe.
class SpanQueue final : public SpanSink {
 public:
  explicit SpanQueue(size_t capacity) : capacity_(capacity) {}

  // All of `spans`, or none of them if there is no room: half a call explains nothing.
  void Add(std::vector<Span> spans) override;

  // At most `most` spans: as soon as so many are there, after `delay` what is there, after Close what
  // is left. Empty once closed and empty.
  std::vector<Span> Take(size_t most, absl::Duration delay);

  // Nothing is taken in from now on.
  void Close();

  int64_t dropped() const { return dropped_.load(std::memory_order_relaxed); }

 private:
  const size_t capacity_;
  std::atomic<int64_t> dropped_{0};
  Mutex mutex_;
  CondVar changed_;
  std::deque<Span> spans_ ABSL_GUARDED_BY(mutex_);
  size_t wanted_ ABSL_GUARDED_BY(mutex_) = 0;  // by the Take that waits
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace deepencoder
