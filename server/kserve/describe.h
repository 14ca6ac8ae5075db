// The model as KServe's clients see it: one BYTES tensor of image files in, embeddings and geometry
// out.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "deepencoder/v1/vision_encoder.pb.h"
#include "inference/grpc_service.pb.h"

namespace deepencoder::kserve {

inline constexpr char kImageTensor[] = "image";            // BYTES [1], or [N, 1]
inline constexpr char kEmbeddingsTensor[] = "embeddings";  // BF16 [rows, 1280], or [N, rows, 1280]
inline constexpr char kGeometryTensor[] =
    "geometry";  // INT32 [8], or [N, 8]: v1::Geometry's fields
inline constexpr int kGeometryFields = 8;
inline constexpr char kModelVersion[] = "1";  // the only one

// Most images of one request. Their results are sent as one message, which gRPC limits to 2 GiB: 32
// of the longest (32 tiles in fp32: 18 MiB) are 0.6 GiB.
inline constexpr int kMaxBatch = 32;

// NOT_FOUND unless it is the model of `info`, in its version or with none given.
absl::Status CheckModel(const v1::ModelInfo& info, const std::string& name,
                        const std::string& version);

inference::ServerMetadataResponse DescribeServer(const v1::ModelInfo& info);
inference::ModelMetadataResponse DescribeModel(const v1::ModelInfo& info);
inference::ModelConfigResponse DescribeConfig(const v1::ModelInfo& info);

}  // namespace deepencoder::kserve
