// The flags by which a command finds its server and shows who it is.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "client/client.h"
#include "client/flags.h"

namespace deepencoder::client {

struct ServerFlags {
  std::string server;  // DEEPENCODER_SERVER, else kDefaultServer
  bool tls = false;
  TlsOptions files;
  std::string token_file;
};

// `values` get what the environment says, then what the flags do. Must outlive `flags`.
void AddServerFlags(FlagSet& flags, ServerFlags& values);

// What to make a client with: `options` with TLS, and with the token of the file or of the environment.
// Errors: of reading the token's file.
absl::StatusOr<ClientOptions> WithServerFlags(const ServerFlags& values,
                                              ClientOptions options = {});

}  // namespace deepencoder::client
