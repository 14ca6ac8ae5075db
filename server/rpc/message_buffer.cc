#include "server/rpc/message_buffer.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>
#include <grpcpp/impl/codegen/proto_utils.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/engine/retry_hint.h"
#include "server/rpc/translate.h"
#include "server/rpc/wire_fields.h"

namespace deepencoder {
namespace {

using DataOwner = std::shared_ptr<const std::byte[]>;

// What memory is short for is other requests, and they are answered within this or so.
constexpr absl::Duration kNoMemoryRetry = absl::Seconds(1);
// Where the rows lie in a message, in bytes from its start: a multiple of this, which malloc keeps, too.
constexpr size_t kDataAlignment = 16;

void ReleaseOwner(void* owner) { delete static_cast<DataOwner*>(owner); }

// A field without meaning that makes `size` bytes a multiple of kDataAlignment; empty if they are one.
std::string Padding(size_t size) {
  constexpr int kField = v1::EncodeImageResponse::kPaddingFieldNumber;
  size_t missing = -size % kDataAlignment;
  if (missing == 0) return {};
  const size_t least = BytesFieldPrefix(kField, 0).size();
  if (missing < least) missing += kDataAlignment;
  return BytesFieldPrefix(kField, missing - least) + std::string(missing - least, '\0');
}
// How many times the largest served message gRPC takes.
constexpr int64_t kReadFactor = 4;

}  // namespace

int MaxMessageBytes(int64_t max_image_bytes) {
  constexpr int64_t kGrpcMost = std::numeric_limits<int>::max();
  return static_cast<int>(std::min(kGrpcMost, kReadFactor * (max_image_bytes + kMessageHeadroom)));
}

absl::Status CheckMessageSize(const grpc::ByteBuffer& message, int64_t max_image_bytes) {
  if (message.Length() <= static_cast<size_t>(max_image_bytes + kMessageHeadroom)) {
    return absl::OkStatus();
  }
  return absl::ResourceExhaustedError(
      absl::StrCat("the message has ", message.Length(), " bytes; the limit of an image is ",
                   max_image_bytes, " (the server's --max-image-bytes)"));
}

std::string PeekId(const grpc::ByteBuffer& message) {
  using google::protobuf::internal::WireFormatLite;
  grpc::ByteBuffer reader = message;  // shares the slices; reading consumes the copy
  grpc::ProtoBufferReader slices(&reader);
  google::protobuf::io::CodedInputStream input(&slices);
  const uint32_t wanted = WireFormatLite::MakeTag(v1::EncodeImageRequest::kIdFieldNumber,
                                                  WireFormatLite::WIRETYPE_LENGTH_DELIMITED);
  while (const uint32_t tag = input.ReadTag()) {
    if (tag != wanted) {
      if (!WireFormatLite::SkipField(&input, tag)) return "";
      continue;
    }
    std::string id;
    uint32_t size = 0;
    if (!input.ReadVarint32(&size) || size > kMaxImageId || !input.ReadString(&id, size)) return "";
    // A string field must be UTF-8: what is none would make a reply that no client can read.
    const bool text = WireFormatLite::VerifyUtf8String(id.data(), static_cast<int>(id.size()),
                                                       WireFormatLite::PARSE, "id");
    return text ? id : "";
  }
  return "";
}

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

absl::Status ParseMessage(const grpc::ByteBuffer& buffer, google::protobuf::Message* message) {
  if (absl::Status status = CheckFields(buffer, *message->GetDescriptor()); !status.ok()) {
    return status;
  }
  try {
    grpc::ByteBuffer reader = buffer;  // shares the slices; parsing consumes the copy
    const grpc::Status status =
        grpc::GenericDeserialize<grpc::ProtoBufferReader, google::protobuf::MessageLite>(&reader,
                                                                                         message);
    if (status.ok()) return absl::OkStatus();
  } catch (const std::bad_alloc&) {
    return WithRetryAfter(
        absl::ResourceExhaustedError(absl::StrCat("no memory for a message of ", buffer.Length(),
                                                  " bytes now; retry later")),
        kNoMemoryRetry);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("the message is no ", message->GetTypeName(), ": its bytes do not parse"));
}

absl::StatusOr<v1::EncodeImageRequest> ParseRequest(const grpc::ByteBuffer& buffer) {
  v1::EncodeImageRequest request;
  if (absl::Status status = ParseMessage(buffer, &request); !status.ok()) return status;
  return request;
}

grpc::ByteBuffer SerializeResponse(const v1::EncodeImageResponse& response,
                                   const EncodeResult& result) {
  std::string head = response.SerializeAsString();
  const std::string prefix =
      BytesFieldPrefix(v1::EncodeImageResponse::kDataFieldNumber, result.bytes);
  head += Padding(head.size() + prefix.size()) + prefix;
  const grpc::Slice slices[] = {grpc::Slice(head), SharedSlice(result)};
  return {slices, 2};
}

grpc::ByteBuffer SerializeResponse(const google::protobuf::MessageLite& response) {
  const grpc::Slice slice(response.SerializeAsString());
  return {&slice, 1};
}

}  // namespace deepencoder
