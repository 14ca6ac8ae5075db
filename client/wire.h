// The public types <-> the protocol's messages.
#pragma once

#include <grpcpp/support/status.h>

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/client.h"
#include "deepencoder/v1/vision_encoder.pb.h"

namespace deepencoder::client {

v1::EncodeImageRequest ToRequest(Image image, const EncodeOptions& options);

// Errors: INTERNAL if the message contradicts itself (a server of another protocol).
absl::StatusOr<Embeddings> ToEmbeddings(v1::EncodeImageResponse response);

ModelInfo ToModelInfo(const v1::ModelInfo& info);

absl::Status ToStatus(const grpc::Status& status);

}  // namespace deepencoder::client
