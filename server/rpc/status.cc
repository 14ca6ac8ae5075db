#include "server/rpc/status.h"

#include <algorithm>
#include <cstdint>
#include <string>

#include "deepencoder/wire/rpc_status.pb.h"
#include "server/engine/retry_hint.h"

namespace deepencoder {
namespace {

constexpr char kRetryInfoType[] = "type.googleapis.com/google.rpc.RetryInfo";
// gRPC refuses a status text with trailing metadata over 8 KiB; no message of ours needs as much.
constexpr size_t kMaxMessage = 1024;

}  // namespace

std::string PrintableMessage(const absl::Status& status) {
  std::string message(status.message().substr(0, kMaxMessage));
  for (char& c : message) {
    if (c < 0x20 || c > 0x7E) c = '?';
  }
  return message;
}

grpc::Status ToGrpcStatus(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  const auto code = static_cast<grpc::StatusCode>(status.code());
  const std::string message = PrintableMessage(status);
  const std::optional<absl::Duration> retry_after = RetryAfter(status);
  if (!retry_after) return {code, message};

  wire::RetryInfo retry;
  absl::Duration rest;
  retry.mutable_retry_delay()->set_seconds(
      absl::IDivDuration(*retry_after, absl::Seconds(1), &rest));
  retry.mutable_retry_delay()->set_nanos(static_cast<int32_t>(absl::ToInt64Nanoseconds(rest)));
  wire::RpcStatus details;
  details.set_code(code);
  details.set_message(message);
  google::protobuf::Any* any = details.add_details();
  any->set_type_url(kRetryInfoType);
  any->set_value(retry.SerializeAsString());
  return {code, message, details.SerializeAsString()};
}

}  // namespace deepencoder
