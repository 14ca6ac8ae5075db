// ModelInfer requests for the tests.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "inference/grpc_service.pb.h"
#include "server/shared_memory/region.h"

namespace deepencoder::kserve {

// What a server that shares no memory finds.
inline absl::StatusOr<std::shared_ptr<const Region>> NoRegions(const std::string& /*name*/) {
  return absl::UnimplementedError("shared memory is off");
}

// The parameters of a tensor that lies in a region.
inline void SetRegion(google::protobuf::Map<std::string, inference::InferParameter>& parameters,
                      const std::string& region, int64_t size, int64_t offset = 0) {
  parameters["shared_memory_region"].set_string_param(region);
  parameters["shared_memory_byte_size"].set_int64_param(size);
  if (offset != 0) parameters["shared_memory_offset"].set_int64_param(offset);
}

// An element of a raw BYTES tensor: its length in 4 bytes, then its bytes.
inline std::string RawElement(const std::string& bytes) {
  std::string element;
  for (int shift = 0; shift < 32; shift += 8) {
    element += static_cast<char>(bytes.size() >> shift & 0xFF);
  }
  return element + bytes;
}

inline inference::ModelInferRequest EmptyRequest(std::initializer_list<int64_t> shape) {
  inference::ModelInferRequest request;
  request.set_model_name("deepseek-ocr");
  auto& input = *request.add_inputs();
  input.set_name("image");
  input.set_datatype("BYTES");
  for (const int64_t size : shape) input.add_shape(size);
  return request;
}

inline inference::ModelInferRequest RawRequest(std::initializer_list<int64_t> shape,
                                               std::initializer_list<const char*> files) {
  inference::ModelInferRequest request = EmptyRequest(shape);
  std::string& raw = *request.add_raw_input_contents();
  for (const char* file : files) raw += RawElement(file);
  return request;
}

inline inference::ModelInferRequest TypedRequest(std::initializer_list<int64_t> shape,
                                                 std::initializer_list<const char*> files) {
  inference::ModelInferRequest request = EmptyRequest(shape);
  for (const char* file : files) {
    request.mutable_inputs(0)->mutable_contents()->add_bytes_contents(file);
  }
  return request;
}

inline void Set(inference::ModelInferRequest& request, const char* name, const std::string& value) {
  (*request.mutable_parameters())[name].set_string_param(value);
}
inline void Set(inference::ModelInferRequest& request, const char* name, int64_t value) {
  (*request.mutable_parameters())[name].set_int64_param(value);
}

}  // namespace deepencoder::kserve
