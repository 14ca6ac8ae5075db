#include "server/trace/span_queue.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/time/clock.h"

namespace deepencoder {

void SpanQueue::Add(std::vector<Span> spans) {
  bool wake = false;
  {
    const MutexLock lock(mutex_);
    if (closed_ || spans_.size() + spans.size() > capacity_) {
      dropped_.fetch_add(static_cast<int64_t>(spans.size()), std::memory_order_relaxed);
      return;
    }
    // The first one starts the delay, and enough of them end it; those between wake nobody.
    wake = spans_.empty() || spans_.size() + spans.size() >= wanted_;
    std::move(spans.begin(), spans.end(), std::back_inserter(spans_));
  }
  if (wake) changed_.NotifyAll();
}

std::vector<Span> SpanQueue::Take(size_t most, absl::Duration delay) {
  const MutexLock lock(mutex_);
  wanted_ = most;
  while (!closed_ && spans_.empty()) changed_.Wait(mutex_);
  const absl::Time due = absl::Now() + delay;
  while (!closed_ && spans_.size() < most) {
    const absl::Duration left = due - absl::Now();
    if (left <= absl::ZeroDuration()) break;
    changed_.WaitFor(mutex_, left);
  }
  const auto end = spans_.begin() + static_cast<ptrdiff_t>(std::min(most, spans_.size()));
  std::vector<Span> taken(std::make_move_iterator(spans_.begin()), std::make_move_iterator(end));
  spans_.erase(spans_.begin(), end);
  return taken;
}

void SpanQueue::Close() {
  {
    const MutexLock lock(mutex_);
    closed_ = true;
  }
  changed_.NotifyAll();
}

}  // namespace deepencoder
