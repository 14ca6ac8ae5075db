// The bound on calls that encode: EncodeImage, ModelInfer, and EncodeImages while an image of it is at work (a
// stream that is silent is none). What their images may take is bounded image by image, in the engine
// (Admission); this bounds what calls hold besides.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/engine/clock.h"
#include "server/engine/engine.h"
#include "server/engine/mean_stay.h"
#include "server/engine/mutex.h"

namespace deepencoder {

// Thread-safe.
class RequestLimit {
 public:
  // `observer` and `clock` must outlive this.
  RequestLimit(int64_t most, EngineObserver* observer, const Clock* clock);

  struct GiveBack {
    absl::Time taken;
    void operator()(RequestLimit* limit) const { limit->Release(taken); }
  };
  // A call's place, given back as it is destroyed; null: no limit. The limit must outlive it.
  using Place = std::unique_ptr<RequestLimit, GiveBack>;

  // `limit` may be null. Errors: RESOURCE_EXHAUSTED with a retry hint.
  static absl::StatusOr<Place> Take(RequestLimit* limit);

 private:
  void Release(absl::Time taken);

  const int64_t most_;
  EngineObserver* const observer_;
  const Clock* const clock_;
  Mutex mutex_;
  int64_t taken_ ABSL_GUARDED_BY(mutex_) = 0;
  MeanStay stay_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace deepencoder
