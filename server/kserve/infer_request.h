// A ModelInfer request, understood: which files to encode, how, and what to answer with.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "inference/grpc_service.pb.h"
#include "server/engine/engine.h"
#include "server/kserve/infer_parameters.h"

namespace deepencoder::kserve {

enum class Output : uint8_t { kEmbeddings, kGeometry };
inline constexpr size_t kOutputs = 2;

struct InferRequest {
  std::vector<SharedBytes>
      files;             // one an image, 1 to kMaxBatch; they share ownership of the message
  bool batched = false;  // shape [N, 1]: outputs have a leading dimension of N
  bool typed = false;    // contents came in the tensor's typed field, not raw
  InferOptions options;
  std::vector<Output> outputs;  // in the order of the answer; not empty
  std::array<std::optional<RegionWindow>, kOutputs>
      windows;  // by Output: where it goes, if not inline

  const std::optional<RegionWindow>& window(Output output) const {
    return windows[static_cast<size_t>(output)];
  }
};

// Looks at all but the model's name and version. What lies in shared memory is copied from there.
// Errors: INVALID_ARGUMENT with what is wrong and what is expected; RESOURCE_EXHAUSTED (contents in
// shared memory that no message could hold, given the limit of an image); `find`'s and Region::Read's.
absl::StatusOr<InferRequest> ReadInferRequest(
    const std::shared_ptr<const inference::ModelInferRequest>& message, const FindRegion& find,
    int64_t max_image_bytes);

}  // namespace deepencoder::kserve
