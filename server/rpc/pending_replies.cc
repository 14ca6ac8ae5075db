#include "server/rpc/pending_replies.h"

#include "server/engine/clock.h"
#include "server/engine/thread_name.h"

namespace deepencoder {

PendingReplies::PendingReplies(const PendingReplyLimits& limits, GivenUp given_up)
    : limits_(limits), given_up_(std::move(given_up)), thread_([this] { Run(); }) {}

PendingReplies::~PendingReplies() {
  {
    const MutexLock lock(mutex_);
    stop_ = true;
  }
  changed_.NotifyAll();
  thread_.join();
}

void PendingReplies::Add(const void* call, int64_t bytes, std::function<void()> cancel) {
  const MutexLock lock(mutex_);
  const auto [at, is_new] = calls_.try_emplace(call);
  Call& held = at->second;
  if (is_new) {
    held.since = SteadyNow();
    held.cancel = std::move(cancel);
    waiting_.emplace(held.since, call);
    WakeFor(held.since);
  }
  if (held.cancel == nullptr) return;  // given up: its end is under way
  held.bytes += bytes;
  bytes_ += bytes;
  KeepBytes();
}

void PendingReplies::Taken(const void* call, int64_t bytes) {
  const MutexLock lock(mutex_);
  const auto at = calls_.find(call);
  if (at == calls_.end() || at->second.cancel == nullptr) return;
  Call& held = at->second;
  waiting_.erase({held.since, call});
  held.bytes -= bytes;
  bytes_ -= bytes;
  if (held.bytes <= 0) {
    bytes_ -= held.bytes;
    calls_.erase(at);
    return;
  }
  held.since = SteadyNow();
  waiting_.emplace(held.since, call);
}

void PendingReplies::Remove(const void* call) {
  const MutexLock lock(mutex_);
  const auto at = calls_.find(call);
  if (at == calls_.end()) return;
  if (at->second.cancel != nullptr) {
    waiting_.erase({at->second.since, call});
    bytes_ -= at->second.bytes;
  }
  calls_.erase(at);
}

void PendingReplies::WakeFor(absl::Time since) {
  const absl::Time due = since + limits_.timeout;
  if (due >= next_look_) return;
  next_look_ = due;
  changed_.NotifyAll();
}

void PendingReplies::KeepBytes() {
  while (bytes_ > limits_.bytes && !waiting_.empty()) GiveUp(*waiting_.begin(), "bytes");
}

void PendingReplies::GiveUp(Waiting which, std::string_view why) {
  Call& call = calls_.at(which.second);
  waiting_.erase(which);
  bytes_ -= call.bytes;
  call.cancel();
  call.cancel = nullptr;
  given_up_(why);
}

void PendingReplies::Run() {
  NameThisThread("replies-watch");
  MutexLock lock(mutex_);
  while (!stop_) {
    absl::Duration left = absl::InfiniteDuration();
    next_look_ = absl::InfiniteFuture();
    if (!waiting_.empty()) {
      const Waiting longest = *waiting_.begin();
      next_look_ = longest.first + limits_.timeout;
      left = next_look_ - SteadyNow();
      if (left <= absl::ZeroDuration()) {
        GiveUp(longest, "time");
        continue;
      }
    }
    changed_.WaitFor(mutex_, left);
  }
}

}  // namespace deepencoder
