// What an image takes at most, by its header: what admission charges before anything is decoded.
#pragma once

#include "absl/status/statusor.h"
#include "encoder/image/decode.h"
#include "server/engine/admission.h"
#include "server/engine/engine.h"
#include "server/engine/request.h"

namespace deepencoder {

struct ImageCost {
  Charge charge;     // bytes of the file, of decoding it, of its views and of its reply
  ViewCounts views;  // those of `charge`, by side
};

// Thread-safe.
// Errors: INVALID_ARGUMENT (raw pixels whose size is not that of their bytes or over `limits.max_pixels`), those of
// ReadHeader and of PlanViews.
absl::StatusOr<ImageCost> CostOf(const EncodeJob& job, const DecodeOptions& limits);

}  // namespace deepencoder
