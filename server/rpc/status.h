// absl::Status -> what travels over gRPC.
#pragma once

#include <grpcpp/support/status.h>

#include <string>

#include "absl/status/status.h"

namespace deepencoder {

// Same code and text; a retry hint of the engine becomes google.rpc.RetryInfo in the status details.
grpc::Status ToGrpcStatus(const absl::Status& status);

// The status' text, cut to what a header can carry and printable ASCII throughout: a proto3 string must
// be UTF-8, and parts of a text may come from a broken file.
std::string PrintableMessage(const absl::Status& status);

}  // namespace deepencoder
