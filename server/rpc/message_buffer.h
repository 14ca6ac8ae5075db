// Messages <-> gRPC buffers, without copying what is large.
#pragma once

#include <google/protobuf/message.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/slice.h>

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "deepencoder/v1/vision_encoder.pb.h"
#include "server/engine/engine.h"

namespace deepencoder {

// What a request may hold beside its image, bytes.
inline constexpr int64_t kMessageHeadroom = int64_t{1} << 20;

// The longest message that gRPC hands over. Beyond it gRPC ends the call, which for a stream is
// every image of it; so it is a multiple of what is served, and what lies between is refused here,
// with its id. Nothing bounds the memory of a message on its way but gRPC's quota (--grpc-memory):
// gRPC 1.51 gathers the whole message before it looks at its length.
int MaxMessageBytes(int64_t max_image_bytes);

// Errors: RESOURCE_EXHAUSTED if the message cannot be a request within the limit. Nothing is parsed.
absl::Status CheckMessageSize(const grpc::ByteBuffer& message, int64_t max_image_bytes);

// The id of an EncodeImageRequest that is too large to be parsed; empty if there is none, or if the
// bytes are no such message. Copies nothing but the id.
std::string PeekId(const grpc::ByteBuffer& message);

// Errors: INVALID_ARGUMENT if the bytes are no such message or have too many fields (CheckFields);
// RESOURCE_EXHAUSTED, with a retry hint, if there is no memory for them now: a large image must not end the
// server.
absl::Status ParseMessage(const grpc::ByteBuffer& buffer, google::protobuf::Message* message);

// Errors: as ParseMessage.
absl::StatusOr<v1::EncodeImageRequest> ParseRequest(const grpc::ByteBuffer& buffer);

// A slice that keeps the result's data alive. gRPC never writes to the bytes of a slice it sends.
grpc::Slice SharedSlice(const EncodeResult& result);

// The key and the length that stand before the `size` bytes of field `number`.
std::string BytesFieldPrefix(int number, size_t size);

// `response` without its data, then the result's data by reference: the buffer shares ownership of it
// until gRPC has sent it. The data begins at a multiple of 16 bytes from the message's start.
grpc::ByteBuffer SerializeResponse(const v1::EncodeImageResponse& response,
                                   const EncodeResult& result);
// A response that has no data.
grpc::ByteBuffer SerializeResponse(const google::protobuf::MessageLite& response);

}  // namespace deepencoder
