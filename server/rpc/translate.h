// The contract's messages <-> the engine's types.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "deepencoder/v1/vision_encoder.pb.h"
#include "encoder/image/decode.h"
#include "encoder/model/geometry.h"
#include "server/engine/engine.h"
#include "server/rpc/call_regions.h"

namespace deepencoder {

inline constexpr size_t kMaxImageId = 256;  // bytes

// What a request that does not say gets, and what no request may exceed.
struct RequestRules {
  std::vector<Mode> modes;  // served
  int max_tiles = kDefaultMaxTiles;
  AlphaPolicy alpha = AlphaPolicy::kDrop;
  Gray16Policy gray16 = Gray16Policy::kHighByte;
  int64_t max_image_bytes = int64_t{32} << 20;
  int64_t shared_memory_bytes = 0;  // of all clients' regions; 0: none is shared
};

// The job's image shares ownership of the request, whose bytes are not copied. Deadline, cancel flag and
// request id are the caller's to set.
// What lies in shared memory is copied from there.
// Errors: INVALID_ARGUMENT (no image, unknown or unserved option), RESOURCE_EXHAUSTED (too many bytes),
// ReadRange's.
absl::StatusOr<EncodeJob> ToJob(const std::shared_ptr<const v1::EncodeImageRequest>& request,
                                const RequestRules& rules, const FindRegion& find_region);
// As above, with `file` as the image; of `options` all fields but the image count.
absl::StatusOr<EncodeJob> ToJob(const v1::EncodeImageRequest& options, SharedBytes file,
                                const RequestRules& rules);

// All fields but data.
v1::EncodeImageResponse ToResponse(std::string id, const EncodeResult& result);
// An answer of a stream to an image that failed. Ids over kMaxImageId are cut.
v1::EncodeImageResponse ToErrorResponse(std::string id, const absl::Status& status);

// Modes, limits and row counts. What depends on weights and device is the caller's to set.
v1::ModelInfo DescribeModes(const RequestRules& rules, int64_t max_image_pixels);

v1::DType ToProto(DType dtype);
v1::Mode ToProto(Mode mode);

}  // namespace deepencoder
