#include "server/engine/watchdog.h"

#include <algorithm>
#include <utility>

#include "server/engine/thread_name.h"

namespace deepencoder {
namespace {

// How often the clock is looked at while calls are under way: how late on_late may come.
constexpr absl::Duration kPeriod = absl::Milliseconds(100);

}  // namespace

Watchdog::Watchdog(absl::Duration timeout, const Clock* clock) : timeout_(timeout), clock_(clock) {
  if (timeout_ < absl::InfiniteDuration()) thread_ = std::thread([this] { Run(); });
}

Watchdog::~Watchdog() {
  {
    MutexLock lock(mutex_);
    stopped_ = true;
  }
  changed_.NotifyAll();
  if (thread_.joinable()) thread_.join();
}

void Watchdog::Run() {
  NameThisThread("watchdog");
  MutexLock lock(mutex_);
  uint64_t seen = 0;  // calls_begun_ when there was last nothing to watch
  while (!stopped_) {
    if (calls_.empty()) {
      // Calls follow calls, and to wake this thread takes longer than some of them: only after a period
      // without any does it sleep until it is woken.
      if (std::exchange(seen, calls_begun_) != calls_begun_) {
        changed_.WaitFor(mutex_, kPeriod);
      } else {
        asleep_ = true;
        changed_.Wait(mutex_);
      }
      continue;
    }
    const auto first = calls_.begin();
    const absl::Duration left = first->second.due - clock_->Now();
    if (left > absl::ZeroDuration()) {
      changed_.WaitFor(mutex_, std::min(left, kPeriod));
      continue;
    }
    telling_ = first->first;
    const std::function<void()> on_late = std::move(first->second.on_late);
    calls_.erase(first);
    mutex_.Unlock();
    on_late();
    mutex_.Lock();
    telling_ = 0;
    told_.NotifyAll();
  }
}

bool Watchdog::Forget(uint64_t id) {
  MutexLock lock(mutex_);
  const bool in_time = calls_.erase(id) > 0;
  while (telling_ == id) told_.Wait(mutex_);
  return in_time;
}

Watchdog::Call::Call(Watchdog* watchdog, std::function<void()> on_late) : watchdog_(watchdog) {
  if (!watchdog_->thread_.joinable()) return;
  MutexLock lock(watchdog_->mutex_);
  id_ = ++watchdog_->calls_begun_;
  watchdog_->calls_.emplace(
      id_, Entry{watchdog_->clock_->Now() + watchdog_->timeout_, std::move(on_late)});
  if (std::exchange(watchdog_->asleep_, false)) watchdog_->changed_.NotifyOne();
}

bool Watchdog::Call::End() {
  if (!std::exchange(ended_, true) && id_ > 0) late_ = !watchdog_->Forget(id_);
  return late_;
}

}  // namespace deepencoder
