#include "server/security/tls_files.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <ctime>
#include <memory>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "server/security/watched_files.h"

namespace deepencoder {
namespace {

struct Free {
  void operator()(BIO* bio) const { BIO_free(bio); }
  void operator()(X509* certificate) const { X509_free(certificate); }
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
  void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
};
template <typename T>
using Owned = std::unique_ptr<T, Free>;

Owned<BIO> Reader(const std::string& text) {
  return Owned<BIO>(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

// An encrypted key is an error; without this, OpenSSL would ask at the terminal.
int NoPassword(char* /*buffer*/, int /*size*/, int /*writing*/, void* /*data*/) { return 0; }

// Certificates of a PEM text, in its order; empty unless all of it is sound.
std::vector<Owned<X509>> Certificates(const std::string& text) {
  std::vector<Owned<X509>> certificates;
  const Owned<BIO> reader = Reader(text);
  while (X509* one = PEM_read_bio_X509(reader.get(), nullptr, NoPassword, nullptr)) {
    certificates.emplace_back(one);
  }
  // The one error that is none: nothing more begins.
  const bool at_end = ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE;
  ERR_clear_error();
  if (!at_end) certificates.clear();
  return certificates;
}

absl::Status Wrong(const std::string& path, const std::string& why) {
  return absl::InvalidArgumentError(absl::StrCat(path, ": ", why));
}

absl::StatusOr<absl::Time> EndOf(X509* certificate) {
  std::tm tm{};
  if (ASN1_TIME_to_tm(X509_get0_notAfter(certificate), &tm) != 1) {
    return absl::InvalidArgumentError("the certificate's end of validity cannot be read");
  }
  return absl::FromTM(tm, absl::UTCTimeZone());
}

// What the TLS library says of the pair, which gRPC would meet at each connection: keys too short for the system's
// security level, signatures by digests that it does not take.
absl::Status TryPair(const TlsPaths& paths, const std::vector<Owned<X509>>& chain, EVP_PKEY* key) {
  const Owned<SSL_CTX> context(SSL_CTX_new(TLS_method()));
  bool taken =
      context != nullptr && SSL_CTX_use_certificate(context.get(), chain.front().get()) == 1;
  for (size_t i = 1; taken && i < chain.size(); ++i) {
    taken = SSL_CTX_add1_chain_cert(context.get(), chain[i].get()) == 1;
  }
  taken = taken && SSL_CTX_use_PrivateKey(context.get(), key) == 1;
  const char* reason = ERR_reason_error_string(ERR_peek_last_error());
  ERR_clear_error();
  if (taken) return absl::OkStatus();
  return Wrong(paths.certificate, absl::StrCat("refused by the TLS library: ",
                                               reason != nullptr ? reason : "unknown error"));
}

absl::Status CheckPair(const TlsPaths& paths, TlsFiles& files) {
  const std::vector<Owned<X509>> chain = Certificates(files.certificate);
  if (chain.empty()) return Wrong(paths.certificate, "no PEM certificate, or a broken one");
  const Owned<BIO> reader = Reader(files.key);
  const Owned<EVP_PKEY> key(PEM_read_bio_PrivateKey(reader.get(), nullptr, NoPassword, nullptr));
  ERR_clear_error();
  if (key == nullptr) return Wrong(paths.key, "no PEM private key, a broken or an encrypted one");
  const bool pair = X509_check_private_key(chain.front().get(), key.get()) == 1;
  ERR_clear_error();
  if (!pair) return Wrong(paths.key, "not the key of the certificate in " + paths.certificate);
  if (absl::Status status = TryPair(paths, chain, key.get()); !status.ok()) return status;
  const absl::StatusOr<absl::Time> end = EndOf(chain.front().get());
  if (!end.ok()) return Wrong(paths.certificate, std::string(end.status().message()));
  files.not_after = *end;
  if (files.not_after > absl::Now()) return absl::OkStatus();
  return Wrong(
      paths.certificate,
      "expired at " + absl::FormatTime("%Y-%m-%d %H:%M:%SZ", files.not_after, absl::UTCTimeZone()));
}

}  // namespace

std::vector<std::string> TlsPaths::All() const {
  std::vector<std::string> all = {certificate, key};
  if (!client_ca.empty()) all.push_back(client_ca);
  return all;
}

absl::StatusOr<TlsFiles> LoadTlsFiles(const TlsPaths& paths) {
  absl::StatusOr<std::string> certificate = ReadSmallFile(paths.certificate);
  if (!certificate.ok()) return certificate.status();
  absl::StatusOr<std::string> key = ReadSecretFile(paths.key);
  if (!key.ok()) return key.status();
  TlsFiles files;
  files.certificate = *std::move(certificate);
  files.key = *std::move(key);
  if (absl::Status status = CheckPair(paths, files); !status.ok()) return status;
  if (paths.client_ca.empty()) return files;
  absl::StatusOr<std::string> authorities = ReadSmallFile(paths.client_ca);
  if (!authorities.ok()) return authorities.status();
  files.client_ca = *std::move(authorities);
  if (Certificates(files.client_ca).empty()) {
    return Wrong(paths.client_ca, "no PEM certificate, or a broken one");
  }
  return files;
}

}  // namespace deepencoder
