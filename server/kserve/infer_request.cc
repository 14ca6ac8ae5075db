#include "server/kserve/infer_request.h"

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/kserve/describe.h"
#include "server/rpc/message_buffer.h"

namespace deepencoder::kserve {
namespace {

using Message = inference::ModelInferRequest;
using Bytes = std::span<const std::byte>;

// Of an element of a raw BYTES tensor, little-endian.
constexpr size_t kLengthBytes = 4;

Bytes AsBytes(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

absl::Status CheckInputs(const Message& message) {
  if (message.inputs_size() != 1) {
    return absl::InvalidArgumentError(absl::StrCat("the request has ", message.inputs_size(),
                                                   " inputs: expected one, ", kImageTensor));
  }
  const Message::InferInputTensor& input = message.inputs(0);
  if (input.name() != kImageTensor) {
    return absl::InvalidArgumentError(
        absl::StrCat("the model has no input '", input.name(), "': expected one, ", kImageTensor));
  }
  if (input.datatype() != "BYTES") {
    return absl::InvalidArgumentError(
        absl::StrCat("input ", kImageTensor, " has datatype '", input.datatype(),
                     "': expected BYTES, each element an image file (JPEG, PNG, WebP, TIFF, BMP "
                     "or GIF)"));
  }
  return absl::OkStatus();
}

// The number of images.
absl::StatusOr<size_t> CheckShape(const Message::InferInputTensor& input) {
  const bool single = input.shape_size() == 1 && input.shape(0) == 1;
  const bool batch = input.shape_size() == 2 && input.shape(0) >= 1 &&
                     input.shape(0) <= kMaxBatch && input.shape(1) == 1;
  if (single || batch) return static_cast<size_t>(input.shape(0));
  return absl::InvalidArgumentError(
      absl::StrCat("input ", kImageTensor, " has shape [", absl::StrJoin(input.shape(), ", "),
                   "]: expected [1] for an image, or [N, 1] for N = 1 to ", kMaxBatch));
}

// The elements of a raw BYTES tensor: each its length, then as many bytes.
absl::StatusOr<std::vector<Bytes>> SplitRaw(Bytes raw, size_t count) {
  std::vector<Bytes> elements;
  while (elements.size() < count) {
    if (raw.size() < kLengthBytes) break;
    size_t length = 0;
    for (size_t i = 0; i < kLengthBytes; ++i) length |= std::to_integer<size_t>(raw[i]) << 8 * i;
    raw = raw.subspan(kLengthBytes);
    if (raw.size() < length) {
      return absl::InvalidArgumentError(absl::StrCat(
          "raw_input_contents of ", kImageTensor, ": element ", elements.size(), " says it has ",
          length, " bytes, but ", raw.size(), " follow; expected for each of ", count,
          " elements its length in 4 bytes, little-endian, and its bytes"));
    }
    elements.push_back(raw.first(length));
    raw = raw.subspan(length);
  }
  if (elements.size() == count && raw.empty()) return elements;
  return absl::InvalidArgumentError(absl::StrCat(
      "raw_input_contents of ", kImageTensor, " has ", elements.size(), " elements and ",
      raw.size(), " bytes more; its shape says ", count, " elements"));
}

absl::StatusOr<std::vector<Bytes>> TakeTyped(const inference::InferTensorContents& contents,
                                             size_t count) {
  if (static_cast<size_t>(contents.bytes_contents_size()) != count) {
    return absl::InvalidArgumentError(absl::StrCat(
        "input ", kImageTensor, " has ", contents.bytes_contents_size(),
        " elements in contents.bytes_contents and none in raw_input_contents; its shape says ",
        count, " elements"));
  }
  std::vector<Bytes> elements;
  for (const std::string& element : contents.bytes_contents()) {
    elements.push_back(AsBytes(element));
  }
  return elements;
}

// The tensor as it would travel raw.
absl::StatusOr<SharedBytes> ReadShared(const RegionWindow& window, int64_t max_image_bytes) {
  const int64_t most = max_image_bytes + kMessageHeadroom;
  if (window.size > static_cast<uint64_t>(most)) {
    return absl::ResourceExhaustedError(
        absl::StrCat("input ", kImageTensor, " has ", window.size,
                     " bytes in shared memory; the limit "
                     "is ",
                     most, " (the server's --max-image-bytes and 1 MiB)"));
  }
  return window.region->Read(window.offset, window.size);
}

absl::Status ReadContents(const std::shared_ptr<const Message>& message, const FindRegion& find,
                          int64_t max_image_bytes, InferRequest& request) {
  const Message::InferInputTensor& input = message->inputs(0);
  const absl::StatusOr<size_t> count = CheckShape(input);
  if (!count.ok()) return count.status();
  request.batched = input.shape_size() == 2;
  const auto window = ReadTensorParameters(input.name(), input.parameters(), find);
  if (!window.ok()) return window.status();
  const int raw = message->raw_input_contents_size();
  request.typed = raw == 0 && !window->has_value();
  const int places = raw + (input.has_contents() ? 1 : 0) + (window->has_value() ? 1 : 0);
  if (places > 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the request has ", raw, " raw_input_contents and ", input.has_contents() ? "" : "no ",
        "contents", window->has_value() ? " and a shared memory region" : "",
        ": expected one raw_input_contents, or the input's contents, or a region"));
  }
  SharedBytes bytes;  // with what they share ownership of
  if (window->has_value()) {
    absl::StatusOr<SharedBytes> shared = ReadShared(**window, max_image_bytes);
    if (!shared.ok()) return shared.status();
    bytes = *std::move(shared);
  } else {
    bytes.owner = message;
    if (raw == 1) bytes.bytes = AsBytes(message->raw_input_contents(0));
  }
  const auto elements =
      request.typed ? TakeTyped(input.contents(), *count) : SplitRaw(bytes.bytes, *count);
  if (!elements.ok()) return elements.status();
  for (const Bytes& element : *elements) request.files.push_back({bytes.owner, element});
  return absl::OkStatus();
}

absl::Status ReadOutputs(const Message& message, const FindRegion& find, InferRequest& request) {
  for (const Message::InferRequestedOutputTensor& wanted : message.outputs()) {
    Output output;
    if (wanted.name() == kEmbeddingsTensor) {
      output = Output::kEmbeddings;
    } else if (wanted.name() == kGeometryTensor) {
      output = Output::kGeometry;
    } else {
      return absl::InvalidArgumentError(absl::StrCat("the model has no output '", wanted.name(),
                                                     "': expected ", kEmbeddingsTensor, " or ",
                                                     kGeometryTensor));
    }
    if (std::ranges::find(request.outputs, output) != request.outputs.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("output ", wanted.name(), " is requested twice"));
    }
    request.outputs.push_back(output);
    auto window = ReadTensorParameters(wanted.name(), wanted.parameters(), find);
    if (!window.ok()) return window.status();
    request.windows[static_cast<size_t>(output)] = *std::move(window);
  }
  if (request.outputs.empty()) request.outputs = {Output::kEmbeddings, Output::kGeometry};
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<InferRequest> ReadInferRequest(const std::shared_ptr<const Message>& message,
                                              const FindRegion& find, int64_t max_image_bytes) {
  InferRequest request;
  request.options.image.set_id(message->id());
  absl::Status status = CheckInputs(*message);
  if (status.ok()) status = ReadContents(message, find, max_image_bytes, request);
  if (status.ok()) status = ReadParameters(message->parameters(), request.options);
  if (status.ok()) status = ReadOutputs(*message, find, request);
  if (!status.ok()) return status;
  return request;
}

}  // namespace deepencoder::kserve
