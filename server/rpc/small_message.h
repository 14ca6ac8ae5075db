// Methods that take no image, and whose messages are short. They are raw: generated code would parse as much
// as gRPC hands over, which is what an image may have, and answer what it cannot parse without a reason.
#pragma once

#include <google/protobuf/message.h>
#include <grpcpp/support/byte_buffer.h>

#include <cstddef>

#include "absl/status/status.h"
#include "server/rpc/message_buffer.h"

namespace deepencoder {

// The longest have a path (4 KiB) and a name.
inline constexpr size_t kMaxSmallMessage = size_t{8} << 10;

// Errors: RESOURCE_EXHAUSTED (longer), INVALID_ARGUMENT (no such message).
absl::Status ParseSmallMessage(const grpc::ByteBuffer& bytes, google::protobuf::Message* message);

// `fill` makes the response of a request, absl::Status(const Request&, Response&). Errors: its own and
// ParseSmallMessage's.
template <typename Request, typename Response, typename Fill>
absl::Status AnswerSmall(const grpc::ByteBuffer& bytes, grpc::ByteBuffer* reply, const Fill& fill) {
  Request request;
  if (absl::Status status = ParseSmallMessage(bytes, &request); !status.ok()) return status;
  Response response;
  if (absl::Status status = fill(request, response); !status.ok()) return status;
  *reply = SerializeResponse(response);
  return absl::OkStatus();
}

}  // namespace deepencoder
