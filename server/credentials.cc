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
      authenticator_({std::begin(kOpenServices), std::end(kOpenServices)}, metrics, logger),
      operators_({}, metrics, logger) {}

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
  if (absl::Status status =
          LoadTokens("--token-file", options_.token_file, "tokens", &tokens_, &authenticator_);
      !status.ok()) {
    return status;
  }
  return LoadTokens("--admin-token-file", options_.admin_token_file, "admin_tokens", &admin_tokens_,
                    &operators_);
}

absl::Status Credentials::LoadTokens(const char* option, const std::string& path,
                                     const std::string& what,
                                     std::unique_ptr<Reloaded<TokenSet>>* tokens,
                                     Authenticator* authenticator) {
  if (path.empty()) return absl::OkStatus();
  auto loaded = Reloaded<TokenSet>::Create(
      what, {path}, kFilePeriod, [path] { return TokenSet::Load(path); }, logger_,
      [what, metrics = metrics_](bool ok) { metrics->OnCredentialReload(what, ok); });
  if (!loaded.ok()) return Of(option, loaded.status());
  *tokens = *std::move(loaded);
  authenticator->SetTokens(tokens->get());
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
