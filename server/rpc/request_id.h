// The name of a call in logs and in its trailing metadata.
#pragma once

#include <grpcpp/server_context.h>

#include <string>

namespace deepencoder {

inline constexpr char kRequestIdKey[] = "x-request-id";

// The client's x-request-id if it is 1 to 128 printable ASCII characters without blanks, else 16 random
// hex digits. Adds it to the call's trailing metadata. Called once a call, before it is finished.
std::string TakeRequestId(grpc::ServerContextBase& context);

}  // namespace deepencoder
