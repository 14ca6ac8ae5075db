#include "server/kserve/infer_response.h"

#include <grpcpp/support/slice.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "encoder/model/config.h"
#include "server/kserve/describe.h"
#include "server/rpc/call_regions.h"
#include "server/rpc/message_buffer.h"
#include "server/rpc/translate.h"

namespace deepencoder::kserve {
namespace {

static_assert(std::endian::native == std::endian::little, "raw contents are little-endian");

using Message = inference::ModelInferResponse;
using Results = std::vector<EncodeResult>;

const char* DatatypeOf(DType dtype) {
  switch (dtype) {
    case DType::kBf16:
      return "BF16";
    case DType::kFp16:
      return "FP16";
    case DType::kFp32:
      return "FP32";
  }
  return "";
}

absl::Status CheckSameRows(const Results& results) {
  for (size_t i = 1; i < results.size(); ++i) {
    if (results[i].rows == results[0].rows) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "the images of a batch must have equally many rows, but image 0 has ", results[0].rows,
        " and image ", i, " has ", results[i].rows,
        ": in mode gundam they depend on the image's size. Send such images in requests of their "
        "own, or choose another mode"));
  }
  return absl::OkStatus();
}

// In the order of v1::Geometry's fields.
std::array<int32_t, kGeometryFields> GeometryOf(const EncodeResult& result) {
  const v1::EncodeImageResponse response = ToResponse("", result);
  const v1::Geometry& g = response.geometry();
  std::array<int32_t, kGeometryFields> values;
  std::ranges::transform(
      std::array<uint32_t, kGeometryFields>{g.image_width(), g.image_height(), g.tile_columns(),
                                            g.tile_rows(), g.base_side(), g.tile_side(),
                                            g.local_rows(), g.global_rows()},
      values.begin(), [](uint32_t value) { return static_cast<int32_t>(value); });
  return values;
}

std::vector<int32_t> GeometriesOf(const Results& results) {
  std::vector<int32_t> values;
  for (const EncodeResult& result : results) {
    const auto geometry = GeometryOf(result);
    values.insert(values.end(), geometry.begin(), geometry.end());
  }
  return values;
}

// Name, datatype and shape.
void AddOutput(Output output, bool batched, const Results& results, Message& message) {
  Message::InferOutputTensor& tensor = *message.add_outputs();
  if (batched) tensor.add_shape(static_cast<int64_t>(results.size()));
  switch (output) {
    case Output::kEmbeddings:
      tensor.set_name(kEmbeddingsTensor);
      tensor.set_datatype(DatatypeOf(results[0].dtype));
      tensor.add_shape(results[0].rows);
      tensor.add_shape(kEmbeddingWidth);
      return;
    case Output::kGeometry:
      tensor.set_name(kGeometryTensor);
      tensor.set_datatype("INT32");
      tensor.add_shape(kGeometryFields);
      return;
  }
}

// FP32 results only.
void AddTypedContents(Output output, const Results& results, inference::InferTensorContents& to) {
  if (output == Output::kGeometry) {
    const std::vector<int32_t> values = GeometriesOf(results);
    to.mutable_int_contents()->Add(values.begin(), values.end());
    return;
  }
  size_t count = 0;
  for (const EncodeResult& result : results) count += result.bytes / sizeof(float);
  to.mutable_fp32_contents()->Resize(static_cast<int>(count), 0);
  float* at = to.mutable_fp32_contents()->mutable_data();
  for (const EncodeResult& result : results) {
    std::memcpy(at, result.data.get(), result.bytes);
    at += result.bytes / sizeof(float);
  }
}

// An entry of raw_output_contents: its key and length, then the bytes, which for embeddings stay
// where they lie.
void AppendRaw(Output output, const Results& results, std::vector<grpc::Slice>& slices) {
  constexpr int kField = Message::kRawOutputContentsFieldNumber;
  if (output == Output::kGeometry) {
    const std::vector<int32_t> values = GeometriesOf(results);
    const size_t bytes = values.size() * sizeof(int32_t);
    slices.emplace_back(BytesFieldPrefix(kField, bytes));
    slices.emplace_back(values.data(), bytes);
    return;
  }
  size_t bytes = 0;
  for (const EncodeResult& result : results) bytes += result.bytes;
  slices.emplace_back(BytesFieldPrefix(kField, bytes));
  for (const EncodeResult& result : results) slices.push_back(SharedSlice(result));
}

absl::Status TooSmall(const std::string& output, uint64_t size, const RegionWindow& window) {
  return absl::InvalidArgumentError(absl::StrCat(
      "output ", output, " has ", size, " bytes; shared_memory_byte_size of it is ", window.size));
}

// Puts the output into its region, and says so in the message.
absl::Status WriteShared(Output output, const RegionWindow& window, const Results& results,
                         Message::InferOutputTensor& tensor) {
  uint64_t size = 0;
  if (output == Output::kGeometry) {
    const std::vector<int32_t> values = GeometriesOf(results);
    const auto bytes = std::as_bytes(std::span(values));
    size = bytes.size();
    if (size > window.size) return TooSmall(tensor.name(), size, window);
    if (absl::Status status = window.region->Write(window.offset, bytes); !status.ok()) {
      return status;
    }
  } else {
    for (const EncodeResult& result : results) size += result.bytes;
    if (size > window.size) return TooSmall(tensor.name(), size, window);
    uint64_t at = 0;
    for (const EncodeResult& result : results) {
      if (absl::Status status = WriteRows(result, window, at); !status.ok()) return status;
      at += result.bytes;
    }
  }
  auto& parameters = *tensor.mutable_parameters();
  parameters[kRegionParameter].set_string_param(window.region->spec().name);
  parameters[kRegionSizeParameter].set_int64_param(static_cast<int64_t>(size));
  if (window.offset != 0) {
    parameters[kRegionOffsetParameter].set_int64_param(static_cast<int64_t>(window.offset));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<grpc::ByteBuffer> WriteInferResponse(const std::string& model,
                                                    const InferRequest& request,
                                                    const Results& results) {
  if (absl::Status status = CheckSameRows(results); !status.ok()) return status;
  Message message;
  message.set_model_name(model);
  message.set_model_version(kModelVersion);
  message.set_id(request.options.image.id());
  const bool typed = request.typed && results[0].dtype == DType::kFp32;
  std::vector<grpc::Slice> raw;
  for (const Output output : request.outputs) {
    AddOutput(output, request.batched, results, message);
    Message::InferOutputTensor& tensor = *message.mutable_outputs(message.outputs_size() - 1);
    if (const auto& window = request.window(output)) {
      absl::Status status = WriteShared(output, *window, results, tensor);
      if (!status.ok()) return status;
      // An entry without bytes, as Triton's: so the others keep their places.
      if (!typed) {
        raw.emplace_back(BytesFieldPrefix(Message::kRawOutputContentsFieldNumber, 0));
      }
    } else if (typed) {
      AddTypedContents(output, results, *tensor.mutable_contents());
    } else {
      AppendRaw(output, results, raw);
    }
  }
  raw.insert(raw.begin(), grpc::Slice(message.SerializeAsString()));
  return grpc::ByteBuffer(raw.data(), raw.size());
}

}  // namespace deepencoder::kserve
