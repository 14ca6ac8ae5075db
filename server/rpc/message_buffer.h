// Messages <-> gRPC buffers, without copying what is large.
#pragma once

#include <grpcpp/support/byte_buffer.h>

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "deepencoder/v1/vision_encoder.pb.h"
#include "server/engine/engine.h"

namespace deepencoder {

// Errors: INVALID_ARGUMENT if the bytes are no EncodeImageRequest.
absl::StatusOr<v1::EncodeImageRequest> ParseRequest(const grpc::ByteBuffer& buffer);

// `response` without its data, then the result's data by reference: the buffer shares ownership of it
// until gRPC has sent it.
grpc::ByteBuffer SerializeResponse(const v1::EncodeImageResponse& response,
                                   const EncodeResult& result);
// A response that has no data.
grpc::ByteBuffer SerializeResponse(const v1::EncodeImageResponse& response);

}  // namespace deepencoder
