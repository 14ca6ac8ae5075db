// What goes with a call beside its message: the request's name and the caller's span.
#pragma once

#include <grpcpp/client_context.h>

#include "absl/status/status.h"
#include "client/client.h"

namespace deepencoder::client {

// Errors: INVALID_ARGUMENT naming the option with a character that no header can have.
absl::Status CheckMetadata(const EncodeOptions& options);

// Of options that were checked: gRPC ends the process over others.
void AddMetadata(const EncodeOptions& options, grpc::ClientContext& context);

}  // namespace deepencoder::client
