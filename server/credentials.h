// The server's own certificate and the tokens it takes, of callers and of operators, as its options name
// them.
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "server/log.h"
#include "server/metrics/metrics.h"
#include "server/options.h"
#include "server/rpc/authenticator.h"
#include "server/security/reloaded.h"
#include "server/security/tls_files.h"
#include "server/security/token_set.h"

namespace deepencoder {

class Credentials {
 public:
  // All must outlive this.
  Credentials(const ServerOptions& options, Metrics* metrics, const Logger* logger);

  // Before the server starts. Errors name the option.
  absl::Status Load();

  // Null: plain text.
  const Reloaded<TlsFiles>* tls() const { return tls_.get(); }
  // Null: calls need no token. Not before Load.
  const Authenticator* authenticator() const {
    return tokens_ == nullptr ? nullptr : &authenticator_;
  }
  // Knows no token before Load, or without --token-file.
  const Authenticator& names() const { return authenticator_; }
  const Authenticator& operator_names() const { return operators_; }
  // Of --admin-listen. Null: calls there need no token. Not before Load.
  const Authenticator* operators() const {
    return admin_tokens_ == nullptr ? nullptr : &operators_;
  }

  // Says in the log what others on the network can do, where `exposed` to them.
  void WarnOfExposure(bool exposed) const;

 private:
  // `option` and its file's `path`; `what` in log and metrics.
  absl::Status LoadTokens(const char* option, const std::string& path, const std::string& what,
                          std::unique_ptr<Reloaded<TokenSet>>* tokens,
                          Authenticator* authenticator);

  const ServerOptions& options_;
  Metrics* const metrics_;
  const Logger* const logger_;
  std::unique_ptr<Reloaded<TlsFiles>> tls_;
  std::unique_ptr<Reloaded<TokenSet>> tokens_, admin_tokens_;
  Authenticator authenticator_, operators_;
};

}  // namespace deepencoder
