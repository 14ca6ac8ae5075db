// The flags by which a command finds its server and shows who it is.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "client/client.h"
#include "client/flags.h"

namespace deepencoder::client {

inline constexpr char kTokenVariable[] = "DEEPENCODER_TOKEN";
// Of those who operate a server. Another one, so that no caller's token goes to where operators are heard.
inline constexpr char kAdminTokenVariable[] = "DEEPENCODER_ADMIN_TOKEN";

struct ServerFlags {
  std::string server;  // DEEPENCODER_SERVER, else kDefaultServer
  bool tls = false;
  TlsOptions files;
  std::string token_file;
  std::string token_variable = kTokenVariable;  // if there is no file
};

// `values` get what the environment says, then what the flags do. Must outlive `flags`.
void AddServerFlags(FlagSet& flags, ServerFlags& values);
// The same without the address.
void AddAccessFlags(FlagSet& flags, ServerFlags& values);

// What to make a client with: `options` with TLS, and with the token of the file or of the environment. To a
// unix socket, which servers serve in plain text, there is TLS only if it was asked for by name.
// Errors: of reading the token's file.
absl::StatusOr<ClientOptions> WithServerFlags(const ServerFlags& values,
                                              ClientOptions options = {});

}  // namespace deepencoder::client
