// What a ServingEngine is made with.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "encoder/image/decode.h"
#include "server/engine/admission.h"
#include "server/engine/batch_queue.h"
#include "server/engine/image_decoder.h"

namespace deepencoder {

struct EngineOptions {
  int decode_threads = 0;                 // 0: one a CPU core
  DecodeOptions decode;                   // limits; a job brings its own alpha and gray16
  std::shared_ptr<ImageDecoder> decoder;  // null: InProcessDecoder
  AdmissionLimits limits;
  BatchPolicy batch;       // its buckets come from each backend
  size_t cache_bytes = 0;  // 0: no result cache and no single flight
  // How long a call into a backend may take before its images fail; infinite: as long as it takes.
  absl::Duration device_timeout = absl::InfiniteDuration();
  std::function<void(const std::string&)> log;  // one line about a fault; may be empty. Thread-safe
};

// Errors: INVALID_ARGUMENT (one out of range).
absl::Status Check(const EngineOptions& options);

}  // namespace deepencoder
