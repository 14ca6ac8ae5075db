// The public types <-> the protocol's messages.
#pragma once

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/status.h>

#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/client.h"
#include "deepencoder/v1/vision_encoder.pb.h"

namespace deepencoder::client {

v1::EncodeImageRequest ToRequest(Image image, const EncodeOptions& options);

// Moves the image's bytes out of the request; null: they are not in it (but in shared memory).
std::shared_ptr<const std::string> TakeImage(v1::EncodeImageRequest& request);

// `request`, from which `image` was taken, as it is sent: with the image, which is not copied and which gRPC
// may hold for longer than the call.
grpc::ByteBuffer ToMessage(const v1::EncodeImageRequest& request,
                           const std::shared_ptr<const std::string>& image);

// Errors: INTERNAL if the message contradicts itself (a server of another protocol).
absl::StatusOr<Embeddings> ToEmbeddings(v1::EncodeImageResponse response);
// The same if the rows are not in the message, but `data`, which lives as long as `owner`.
absl::StatusOr<Embeddings> ToEmbeddings(const v1::EncodeImageResponse& response,
                                        std::string_view data, std::shared_ptr<const void> owner);

ModelInfo ToModelInfo(const v1::ModelInfo& info);

absl::Status ToStatus(const grpc::Status& status);

}  // namespace deepencoder::client
