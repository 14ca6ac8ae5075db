// The connection to a server.
#pragma once

#include <grpcpp/channel.h>

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "client/client.h"

namespace deepencoder::client {

// A channel whose every call carries what `options` say of TLS and tokens. No connection is made yet.
// To a server of this machine it goes straight, whatever proxy the environment names.
// Errors: INVALID_ARGUMENT (an empty target, options that do not go together, a token that others could
// read on its way), those of reading the files.
absl::StatusOr<std::shared_ptr<grpc::Channel>> OpenChannel(const std::string& target,
                                                           const ClientOptions& options);

}  // namespace deepencoder::client
