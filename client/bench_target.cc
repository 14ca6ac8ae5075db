#include "client/bench_target.h"

#include <utility>

namespace deepencoder::client {

void ServerTarget::Send(uint64_t ticket, const WorkItem& item) {
  EncodeOptions options = options_;
  options.mode = item.mode;
  Image& copy = copies_.try_emplace(item.image.get(), *item.image).first->second;
  client_.EncodeAsync(std::move(copy), options, [this, ticket](absl::StatusOr<Embeddings> result) {
    Answer answer;
    answer.ticket = ticket;
    answer.finished = absl::Now();
    answer.code = result.status().code();
    if (result.ok()) {
      answer.rows = result->rows;
      answer.bytes = result->data.size();
      answer.timings = result->timings;
    }
    // Notified under the lock: once it is released the answer may be taken and this object gone.
    const std::lock_guard lock(mutex_);
    answers_.push_back(answer);
    arrived_.notify_one();
  });
  copy = *item.image;
}

std::optional<Answer> ServerTarget::Next(absl::Time until) {
  std::unique_lock lock(mutex_);
  const auto there = [this] { return !answers_.empty(); };
  if (until == absl::InfiniteFuture()) {
    arrived_.wait(lock, there);
  } else if (!arrived_.wait_until(lock, absl::ToChronoTime(until), there)) {
    return std::nullopt;
  }
  const Answer answer = answers_.front();
  answers_.pop_front();
  return answer;
}

}  // namespace deepencoder::client
