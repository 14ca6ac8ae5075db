#include "server/rpc/message_buffer.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>
#include <grpcpp/impl/codegen/proto_utils.h>

#include <memory>
#include <utility>

namespace deepencoder {
namespace {

using DataOwner = std::shared_ptr<const std::byte[]>;

void ReleaseOwner(void* owner) { delete static_cast<DataOwner*>(owner); }

}  // namespace

grpc::Slice SharedSlice(const EncodeResult& result) {
  auto owner = std::make_unique<DataOwner>(result.data);
  auto* bytes = const_cast<std::byte*>(result.data.get());
  return {bytes, result.bytes, ReleaseOwner, owner.release()};
}

std::string BytesFieldPrefix(int number, size_t size) {
  using google::protobuf::internal::WireFormatLite;
  uint8_t prefix[16];
  const uint32_t tag = WireFormatLite::MakeTag(number, WireFormatLite::WIRETYPE_LENGTH_DELIMITED);
  uint8_t* end = google::protobuf::io::CodedOutputStream::WriteVarint32ToArray(tag, prefix);
  end = google::protobuf::io::CodedOutputStream::WriteVarint64ToArray(size, end);
  return {prefix, end};
}

absl::StatusOr<v1::EncodeImageRequest> ParseRequest(const grpc::ByteBuffer& buffer) {
  grpc::ByteBuffer reader = buffer;  // shares the slices; parsing consumes the copy
  v1::EncodeImageRequest request;
  const grpc::Status status =
      grpc::SerializationTraits<v1::EncodeImageRequest>::Deserialize(&reader, &request);
  if (!status.ok()) {
    return absl::InvalidArgumentError(
        "the message is not a deepencoder.v1.EncodeImageRequest: its bytes do not parse");
  }
  return request;
}

grpc::ByteBuffer SerializeResponse(const v1::EncodeImageResponse& response,
                                   const EncodeResult& result) {
  std::string head = response.SerializeAsString();
  head += BytesFieldPrefix(v1::EncodeImageResponse::kDataFieldNumber, result.bytes);
  const grpc::Slice slices[] = {grpc::Slice(head), SharedSlice(result)};
  return {slices, 2};
}

grpc::ByteBuffer SerializeResponse(const v1::EncodeImageResponse& response) {
  const grpc::Slice slice(response.SerializeAsString());
  return {&slice, 1};
}

}  // namespace deepencoder
