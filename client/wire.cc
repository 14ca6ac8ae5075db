#include "client/wire.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/wire_format_lite.h>

#include <utility>

#include "absl/strings/str_cat.h"

namespace deepencoder::client {
namespace {

Geometry ToGeometry(const v1::Geometry& from) {
  Geometry geometry;
  geometry.image_width = static_cast<int>(from.image_width());
  geometry.image_height = static_cast<int>(from.image_height());
  geometry.tile_columns = static_cast<int>(from.tile_columns());
  geometry.tile_rows = static_cast<int>(from.tile_rows());
  geometry.base_side = static_cast<int>(from.base_side());
  geometry.tile_side = static_cast<int>(from.tile_side());
  geometry.local_rows = static_cast<int>(from.local_rows());
  geometry.global_rows = static_cast<int>(from.global_rows());
  return geometry;
}

Timings ToTimings(const v1::Timings& from) {
  return {.decode = from.decode(),
          .views = from.views(),
          .queue = from.queue(),
          .compute = from.compute(),
          .assemble = from.assemble(),
          .total = from.total()};
}

using Owner = std::shared_ptr<const std::string>;

void ReleaseOwner(void* owner) { delete static_cast<Owner*>(owner); }

// What comes before a field's `size` bytes: its number and the size.
std::string FieldPrefix(int number, size_t size) {
  using google::protobuf::internal::WireFormatLite;
  std::string prefix;
  google::protobuf::io::StringOutputStream stream(&prefix);
  google::protobuf::io::CodedOutputStream out(&stream);
  out.WriteTag(WireFormatLite::MakeTag(number, WireFormatLite::WIRETYPE_LENGTH_DELIMITED));
  out.WriteVarint64(size);
  out.Trim();
  return prefix;
}

}  // namespace

v1::EncodeImageRequest ToRequest(Image image, const EncodeOptions& options) {
  v1::EncodeImageRequest request;
  if (image.encoded.empty() && image.width != 0) {
    v1::RawImage& raw = *request.mutable_raw();
    raw.set_width(image.width);
    raw.set_height(image.height);
    *raw.mutable_rgb() = std::move(image.rgb);
  } else {
    *request.mutable_encoded() = std::move(image.encoded);
  }
  request.set_mode(static_cast<v1::Mode>(options.mode));
  if (options.max_tiles) request.set_max_tiles(static_cast<uint32_t>(*options.max_tiles));
  request.set_dtype(static_cast<v1::DType>(options.dtype));
  if (options.alpha) request.set_alpha(static_cast<v1::AlphaPolicy>(*options.alpha));
  if (options.gray16) request.set_gray16(static_cast<v1::Gray16Policy>(*options.gray16));
  return request;
}

std::shared_ptr<const std::string> TakeImage(v1::EncodeImageRequest& request) {
  if (request.has_encoded()) return Owner(request.release_encoded());
  if (request.has_raw() && !request.raw().rgb().empty()) {
    return Owner(request.mutable_raw()->release_rgb());
  }
  return nullptr;
}

grpc::ByteBuffer ToMessage(const v1::EncodeImageRequest& request,
                           const std::shared_ptr<const std::string>& image) {
  std::string head = request.SerializeAsString();
  if (image == nullptr) {
    const grpc::Slice slice(head);
    return {&slice, 1};
  }
  if (request.has_raw()) {
    // The rest of the raw image is in `head`; a message field that comes twice is merged.
    const std::string pixels = FieldPrefix(v1::RawImage::kRgbFieldNumber, image->size());
    head += FieldPrefix(v1::EncodeImageRequest::kRawFieldNumber, pixels.size() + image->size());
    head += pixels;
  } else {
    head += FieldPrefix(v1::EncodeImageRequest::kEncodedFieldNumber, image->size());
  }
  auto owner = std::make_unique<Owner>(image);
  auto* bytes = const_cast<char*>(image->data());
  const grpc::Slice slices[] = {grpc::Slice(head),
                                {bytes, image->size(), ReleaseOwner, owner.release()}};
  return {slices, 2};
}

absl::StatusOr<Embeddings> ToEmbeddings(v1::EncodeImageResponse response) {
  auto data = std::make_shared<const std::string>(std::move(*response.mutable_data()));
  return ToEmbeddings(response, *data, data);
}

absl::StatusOr<Embeddings> ToEmbeddings(const v1::EncodeImageResponse& response,
                                        std::string_view data, std::shared_ptr<const void> owner) {
  Embeddings embeddings;
  if (response.dtype() < v1::DTYPE_BF16 || response.dtype() > v1::DTYPE_FP32 ||
      response.shape_size() != 2) {
    return absl::InternalError("the server's reply has no known dtype or no shape of two sides");
  }
  embeddings.dtype = static_cast<DType>(response.dtype());
  const uint64_t bytes = uint64_t{response.shape(0)} * response.shape(1) * SizeOf(embeddings.dtype);
  if (bytes != data.size()) {
    return absl::InternalError(absl::StrCat("the server's reply of shape [", response.shape(0),
                                            ", ", response.shape(1), "] has ", data.size(),
                                            " bytes instead of ", bytes));
  }
  embeddings.rows = static_cast<int>(response.shape(0));
  embeddings.width = static_cast<int>(response.shape(1));
  embeddings.data = data;
  embeddings.owner = std::move(owner);
  embeddings.geometry = ToGeometry(response.geometry());
  embeddings.timings = ToTimings(response.timings());
  return embeddings;
}

ModelInfo ToModelInfo(const v1::ModelInfo& from) {
  ModelInfo info;
  info.model = from.model();
  info.weights_fingerprint = from.weights_fingerprint();
  info.device = from.device();
  info.version = from.version();
  info.commit = from.commit();
  info.embedding_width = static_cast<int>(from.embedding_width());
  info.compute_dtype = static_cast<DType>(from.compute_dtype());
  for (const v1::ModeInfo& mode : from.modes()) {
    info.modes.push_back({.mode = static_cast<Mode>(mode.mode()),
                          .name = mode.name(),
                          .base_side = static_cast<int>(mode.base_side()),
                          .tile_side = static_cast<int>(mode.tile_side()),
                          .letterbox = mode.letterbox(),
                          .rows = static_cast<int>(mode.rows())});
  }
  info.max_image_bytes = from.limits().max_image_bytes();
  info.max_image_pixels = from.limits().max_image_pixels();
  info.max_shared_memory_bytes = from.limits().max_shared_memory_bytes();
  info.default_max_tiles = static_cast<int>(from.default_max_tiles());
  info.synthetic = from.synthetic();
  return info;
}

absl::Status ToStatus(const grpc::Status& status) {
  return {static_cast<absl::StatusCode>(status.error_code()), status.error_message()};
}

}  // namespace deepencoder::client
