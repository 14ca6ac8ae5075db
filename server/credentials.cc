#include "server/credentials.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace deepencoder {
namespace {

// How soon a changed file is noticed; it is read once it has stayed the same for as long.
constexpr absl::Duration kFilePeriod = absl::Seconds(1);

absl::Status Of(const char* option, const absl::Status& status) {
  return {status.code(), absl::StrCat(option, ": ", std::string(status.message()))};
}

}  // namespace

Credentials::Credentials(const ServerOptions& options, Metrics* metrics, const Logger* logger)
    : options_(options),
      metrics_(metrics),
      logger_(logger),
      authenticator_({std::begin(kOpenServices), std::end(kOpenServices)}, metrics, logger) {}

absl::Status Credentials::Load() {
  if (!options_.tls_cert.empty()) {
    const TlsPaths paths = {options_.tls_cert, options_.tls_key, options_.tls_client_ca};
    auto tls = Reloaded<TlsFiles>::Create(
        "tls", paths.All(), kFilePeriod,
        [paths, metrics = metrics_] {
          absl::StatusOr<TlsFiles> files = LoadTlsFiles(paths);
          if (files.ok())
            metrics->SetCertificateExpiry(
                absl::ToDoubleSeconds(files->not_after - absl::UnixEpoch()));
          return files;
        },
        logger_, [metrics = metrics_](bool ok) { metrics->OnCredentialReload("tls", ok); });
    if (!tls.ok()) return Of("--tls-cert, --tls-key, --tls-client-ca", tls.status());
    tls_ = *std::move(tls);
  }
  if (!options_.token_file.empty()) {
    auto tokens = Reloaded<TokenSet>::Create(
        "tokens", {options_.token_file}, kFilePeriod,
        [path = options_.token_file] { return TokenSet::Load(path); }, logger_,
        [metrics = metrics_](bool ok) { metrics->OnCredentialReload("tokens", ok); });
    if (!tokens.ok()) return Of("--token-file", tokens.status());
    tokens_ = *std::move(tokens);
    authenticator_.SetTokens(tokens_.get());
  }
  return absl::OkStatus();
}

void Credentials::WarnOfExposure(bool exposed) const {
  if (!exposed) return;
  if (tls_ == nullptr) {
    logger_->Warning(
        "gRPC is served in plain text to other machines: what is sent, tokens too, can be read and "
        "changed on its way. Use --tls-cert and --tls-key, or listen on this machine alone");
  }
  if (tokens_ == nullptr && options_.tls_client_ca.empty()) {
    logger_->Warning(
        "whoever reaches the gRPC port may use it: there is neither --token-file nor "
        "--tls-client-ca");
  }
}

}  // namespace deepencoder
