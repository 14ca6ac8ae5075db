// An engine on strings: it keeps the jobs it is given until the test answers them.
#pragma once

#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "encoder/model/config.h"
#include "server/engine/engine.h"
#include "server/engine/mutex.h"

namespace deepencoder {

class PuppetEngine final : public Engine {
 public:
  struct Held {
    EncodeJob job;
    EncodeDone done;
  };
  using Script = std::function<absl::StatusOr<EncodeResult>(const EncodeJob& job)>;

  // Answers every job at once, in the caller's thread; null: jobs are held.
  void Play(Script script) {
    const MutexLock lock(mutex_);
    script_ = std::move(script);
  }

  // The oldest job that is held; waits for one.
  Held Take() {
    const MutexLock lock(mutex_);
    while (held_.empty()) changed_.Wait(mutex_);
    Held held = std::move(held_.front());
    held_.pop_front();
    return held;
  }

  // Cancels what is held and, unless there is a script, what still comes.
  void Abandon() {
    std::deque<Held> held;
    {
      const MutexLock lock(mutex_);
      held.swap(held_);
      if (!script_) {
        script_ = [](const EncodeJob&) { return absl::CancelledError("the test is over"); };
      }
    }
    for (Held& one : held) one.done(absl::CancelledError("the test is over"));
  }

  bool HasHeld() {
    const MutexLock lock(mutex_);
    return !held_.empty();
  }

  // Jobs that have come so far.
  int seen() {
    const MutexLock lock(mutex_);
    return seen_;
  }

  void Encode(EncodeJob job, EncodeDone done) override {
    Script script;
    {
      const MutexLock lock(mutex_);
      ++seen_;
      script = script_;
      if (!script) held_.push_back({std::move(job), std::move(done)});
      changed_.NotifyAll();
    }
    if (script) done(script(job));
  }
  bool healthy() const override { return true; }
  bool Drain(absl::Time /*deadline*/) override { return true; }

 private:
  Mutex mutex_;
  CondVar changed_;
  Script script_ ABSL_GUARDED_BY(mutex_);
  std::deque<Held> held_ ABSL_GUARDED_BY(mutex_);
  int seen_ ABSL_GUARDED_BY(mutex_) = 0;
};

// A result of the right shape for the job; every byte of it is `fill`.
inline EncodeResult FilledResult(const EncodeJob& job, TileGrid tiles = {}, char fill = 7) {
  EncodeResult result;
  result.rows = LayoutOf(job.mode, tiles).rows;
  result.bytes = static_cast<size_t>(result.rows) * kEmbeddingWidth * SizeOf(job.dtype);
  std::shared_ptr<std::byte[]> data(new std::byte[result.bytes]);
  std::fill_n(data.get(), result.bytes, static_cast<std::byte>(fill));
  result.data = data;
  result.dtype = job.dtype;
  result.mode = job.mode;
  result.image_width = 300;
  result.image_height = 200;
  result.tiles = tiles;
  result.seconds = {.decode = 0.001,
                    .views = 0.002,
                    .queue = 0.003,
                    .compute = 0.004,
                    .assemble = 0.005,
                    .total = 0.015};
  return result;
}

}  // namespace deepencoder
