// The parameters of a ModelInfer request.
#pragma once

#include <google/protobuf/map.h>

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "deepencoder/v1/vision_encoder.pb.h"
#include "inference/grpc_service.pb.h"
#include "server/rpc/call_regions.h"

namespace deepencoder::kserve {

using Parameters = google::protobuf::Map<std::string, inference::InferParameter>;

// Of a tensor that lies in shared memory.
inline constexpr char kRegionParameter[] = "shared_memory_region";
inline constexpr char kRegionSizeParameter[] = "shared_memory_byte_size";
inline constexpr char kRegionOffsetParameter[] = "shared_memory_offset";

struct InferOptions {
  v1::EncodeImageRequest image;  // all but the image itself
  absl::Duration timeout = absl::InfiniteDuration();
};

// Sets what `parameters` say: mode, max_tiles, dtype, alpha, gray16, timeout.
// Errors: INVALID_ARGUMENT naming the parameter and what it may be.
absl::Status ReadParameters(const Parameters& parameters, InferOptions& options);

// Where the parameters of a tensor say that it lies: shared_memory_region, shared_memory_byte_size and,
// unless it is 0, shared_memory_offset. Nothing: in the message. A tensor has no other parameters.
// Errors: INVALID_ARGUMENT naming the parameter, `find`'s, Region::CheckRange's.
absl::StatusOr<std::optional<RegionWindow>> ReadTensorParameters(const std::string& tensor,
                                                                 const Parameters& parameters,
                                                                 const FindRegion& find);

}  // namespace deepencoder::kserve
