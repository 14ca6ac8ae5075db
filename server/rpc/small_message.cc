#include "server/rpc/small_message.h"

#include "absl/strings/str_cat.h"

namespace deepencoder {

absl::Status ParseSmallMessage(const grpc::ByteBuffer& bytes, google::protobuf::Message* message) {
  if (bytes.Length() > kMaxSmallMessage) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the message has ", bytes.Length(), " bytes; the limit of a ",
                     message->GetTypeName(), " is ", kMaxSmallMessage));
  }
  return ParseMessage(bytes, message);
}

}  // namespace deepencoder
