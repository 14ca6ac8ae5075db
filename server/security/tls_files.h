// The server's certificate and key, and whom it trusts: PEM files.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace deepencoder {

struct TlsPaths {
  std::string certificate;  // the server's, then those between it and a root
  std::string key;          // of the first; not encrypted
  std::string client_ca;    // empty: clients need no certificate

  std::vector<std::string> All() const;
};

// What the files hold, found to be usable together.
struct TlsFiles {
  std::string certificate, key, client_ca;
  absl::Time not_after;  // end of the certificate's validity
};

// Errors: those of ReadSecretFile (for the key); INVALID_ARGUMENT: not PEM, key and certificate that do
// not belong together or that the TLS library does not take, a certificate that has expired.
absl::StatusOr<TlsFiles> LoadTlsFiles(const TlsPaths& paths);

}  // namespace deepencoder
