#include "server/engine/engine_options.h"

namespace deepencoder {

absl::Status Check(const EngineOptions& options) {
  const AdmissionLimits& limits = options.limits;
  if (limits.images < 1 || limits.bytes < 1 || limits.views < 1) {
    return absl::InvalidArgumentError("the bounds on images, bytes and views must be at least 1");
  }
  const BatchPolicy& batch = options.batch;
  if (batch.max_delay < absl::ZeroDuration() || batch.patience < absl::ZeroDuration() ||
      !(batch.max_padding >= 0 && batch.max_padding <= 1)) {
    return absl::InvalidArgumentError(
        "the batch delay and patience must not be negative, nor the padding outside [0, 1]");
  }
  if (options.device_timeout <= absl::ZeroDuration()) {
    return absl::InvalidArgumentError("the timeout of the devices must be positive");
  }
  if (options.decode_threads < 0) {
    return absl::InvalidArgumentError("the number of decode threads must not be negative");
  }
  return absl::OkStatus();
}

}  // namespace deepencoder
