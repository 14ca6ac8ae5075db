// Who may call: bearer tokens. Asked by gRPC for every call of every service on a port once its headers
// are there, before any of its messages is read: a service cannot forget it.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "server/log.h"
#include "server/rpc/rpc_observer.h"
#include "server/security/reloaded.h"
#include "server/security/token_set.h"

namespace deepencoder {

// The services whose calls need no token on the serving ports: a prober (Kubernetes) has none, and
// learns no more than whether the server is up.
inline constexpr std::string_view kOpenServices[] = {"grpc.health.v1.Health"};

// Thread-safe.
class Authenticator {
 public:
  // `observer` and `logger` must outlive this. `open`: full names of services that need no token.
  Authenticator(std::vector<std::string> open, RpcObserver* observer, const Logger* logger);

  // Before the first call; no token is valid otherwise. `tokens` must outlive this.
  void SetTokens(const Reloaded<TokenSet>* tokens) { tokens_ = tokens; }

  // `path` is what the client sent as "/package.Service/Method", of any form; `authorization` all values of that metadata key.
  // Errors: UNAUTHENTICATED, saying what is missing and never what is right.
  absl::Status Check(std::string_view path,
                     const std::vector<std::string_view>& authorization) const;

  // The name of the token in an authorization value; nothing if it is not valid.
  std::optional<std::string> NameOf(std::string_view authorization) const;

 private:
  absl::Status Refuse(AuthFailure failure, std::string_view path, std::string_view text) const;

  const Reloaded<TokenSet>* tokens_ = nullptr;
  const std::vector<std::string> open_;
  RpcObserver* const observer_;
  const Logger* const logger_;
};

}  // namespace deepencoder
