// The parameters of a ModelInfer request.
#pragma once

#include <google/protobuf/map.h>

#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "deepencoder/v1/vision_encoder.pb.h"
#include "inference/grpc_service.pb.h"

namespace deepencoder::kserve {

using Parameters = google::protobuf::Map<std::string, inference::InferParameter>;

struct InferOptions {
  v1::EncodeImageRequest image;  // all but the image itself
  absl::Duration timeout = absl::InfiniteDuration();
};

// Sets what `parameters` say: mode, max_tiles, dtype, alpha, gray16, timeout.
// Errors: INVALID_ARGUMENT naming the parameter and what it may be.
absl::Status ReadParameters(const Parameters& parameters, InferOptions& options);

// A tensor has no parameters here. Errors: UNIMPLEMENTED for shared memory, else INVALID_ARGUMENT.
absl::Status CheckTensorParameters(const std::string& tensor, const Parameters& parameters);

}  // namespace deepencoder::kserve
