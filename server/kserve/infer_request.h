// A ModelInfer request, understood: which files to encode, how, and what to answer with.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "inference/grpc_service.pb.h"
#include "server/engine/engine.h"
#include "server/kserve/infer_parameters.h"

namespace deepencoder::kserve {

enum class Output : uint8_t { kEmbeddings, kGeometry };

struct InferRequest {
  std::vector<SharedBytes>
      files;             // one an image, 1 to kMaxBatch; they share ownership of the message
  bool batched = false;  // shape [N, 1]: outputs have a leading dimension of N
  bool typed = false;    // contents came in the tensor's typed field, not raw
  InferOptions options;
  std::vector<Output> outputs;  // in the order of the answer; not empty
};

// Looks at all but the model's name and version.
// Errors: INVALID_ARGUMENT, UNIMPLEMENTED (shared memory), with what is wrong and what is expected.
absl::StatusOr<InferRequest> ReadInferRequest(
    const std::shared_ptr<const inference::ModelInferRequest>& message);

}  // namespace deepencoder::kserve
