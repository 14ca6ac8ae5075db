#include "server/kserve/describe.h"

#include <initializer_list>

#include "absl/strings/str_cat.h"

namespace deepencoder::kserve {
namespace {

constexpr char kPlatform[] = "deepencoder";

void SetTensor(inference::ModelMetadataResponse::TensorMetadata& tensor, const char* name,
               const char* datatype, std::initializer_list<int64_t> shape) {
  tensor.set_name(name);
  tensor.set_datatype(datatype);
  for (const int64_t size : shape) tensor.add_shape(size);
}

template <typename Tensor>
void SetTensor(Tensor& tensor, const char* name, inference::DataType type,
               std::initializer_list<int64_t> dims) {
  tensor.set_name(name);
  tensor.set_data_type(type);
  for (const int64_t size : dims) tensor.add_dims(size);
}

std::string ModeNames(const v1::ModelInfo& info) {
  std::string names;
  for (const v1::ModeInfo& mode : info.modes()) {
    absl::StrAppend(&names, names.empty() ? "" : ",", mode.name());
  }
  return names;
}

}  // namespace

absl::Status CheckModel(const v1::ModelInfo& info, const std::string& name,
                        const std::string& version) {
  if (name != info.model()) {
    return absl::NotFoundError(
        absl::StrCat("there is no model '", name, "'; served: ", info.model()));
  }
  if (!version.empty() && version != kModelVersion) {
    return absl::NotFoundError(
        absl::StrCat("model ", name, " has no version '", version, "'; served: ", kModelVersion));
  }
  return absl::OkStatus();
}

inference::ServerMetadataResponse DescribeServer(const v1::ModelInfo& info) {
  inference::ServerMetadataResponse metadata;
  metadata.set_name("deepencoder-server");
  metadata.set_version(info.version());
  metadata.add_extensions("model_configuration");
  metadata.add_extensions("parameters");
  if (info.limits().max_shared_memory_bytes() != 0) {
    metadata.add_extensions("system_shared_memory");
  }
  return metadata;
}

inference::ModelMetadataResponse DescribeModel(const v1::ModelInfo& info) {
  inference::ModelMetadataResponse metadata;
  metadata.set_name(info.model());
  metadata.add_versions(kModelVersion);
  metadata.set_platform(kPlatform);
  const int64_t width = info.embedding_width();
  SetTensor(*metadata.add_inputs(), kImageTensor, "BYTES", {-1, 1});
  SetTensor(*metadata.add_outputs(), kEmbeddingsTensor, "BF16", {-1, -1, width});
  SetTensor(*metadata.add_outputs(), kGeometryTensor, "INT32", {-1, kGeometryFields});
  return metadata;
}

inference::ModelConfigResponse DescribeConfig(const v1::ModelInfo& info) {
  inference::ModelConfigResponse response;
  inference::ModelConfig& config = *response.mutable_config();
  config.set_name(info.model());
  config.set_platform(kPlatform);
  config.set_backend(kPlatform);
  config.set_max_batch_size(kMaxBatch);
  const int64_t width = info.embedding_width();
  SetTensor(*config.add_input(), kImageTensor, inference::TYPE_STRING, {1});
  SetTensor(*config.add_output(), kEmbeddingsTensor, inference::TYPE_BF16, {-1, width});
  SetTensor(*config.add_output(), kGeometryTensor, inference::TYPE_INT32, {kGeometryFields});
  config.mutable_dynamic_batching();
  config.mutable_model_transaction_policy()->set_decoupled(false);
  const auto set = [&config](const char* key, std::string value) {
    (*config.mutable_parameters())[key].set_string_value(std::move(value));
  };
  set("modes", ModeNames(info));
  set("default_max_tiles", absl::StrCat(info.default_max_tiles()));
  set("max_image_bytes", absl::StrCat(info.limits().max_image_bytes()));
  set("max_image_pixels", absl::StrCat(info.limits().max_image_pixels()));
  set("weights_fingerprint", info.weights_fingerprint());
  set("device", info.device());
  return response;
}

}  // namespace deepencoder::kserve
