// Results -> the ModelInferResponse, without copying the embeddings.
#pragma once

#include <grpcpp/support/byte_buffer.h>

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/engine/engine.h"
#include "server/kserve/infer_request.h"

namespace deepencoder::kserve {

// `results` are those of request.files, in their order, and not empty. The answer is raw and shares
// ownership of the results' data until gRPC has sent it; but a request with typed contents and
// dtype FP32 is answered with typed contents (a copy), as 16-bit floats have none.
// Outputs that have a window in shared memory are written there.
// Errors: INVALID_ARGUMENT (the results of a batch differ in rows, a window is too small),
// Region::Write's.
absl::StatusOr<grpc::ByteBuffer> WriteInferResponse(const std::string& model,
                                                    const InferRequest& request,
                                                    const std::vector<EncodeResult>& results);

}  // namespace deepencoder::kserve
