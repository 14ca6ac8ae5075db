#include "server/rpc/server_credentials.h"

#include <grpc/grpc_security.h>
#include <grpc/slice.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "server/engine/mutex.h"
#include "server/rpc/status.h"

namespace deepencoder {
namespace {

std::string_view View(const grpc_slice& slice) {
  // NOLINTNEXTLINE(bugprone-sizeof-expression): gRPC's macros
  return {reinterpret_cast<const char*>(GRPC_SLICE_START_PTR(slice)), GRPC_SLICE_LENGTH(slice)};
}

// grpc_auth_metadata_processor::process; `state` is the Authenticator.
void ProcessMetadata(void* state, grpc_auth_context* /*context*/, const grpc_metadata* metadata,
                     size_t count, grpc_process_auth_metadata_done_cb done, void* data) {
  std::string_view path;
  std::vector<std::string_view> authorization;
  for (size_t i = 0; i < count; ++i) {
    const std::string_view key = View(metadata[i].key);
    if (key == ":path") path = View(metadata[i].value);
    if (key == "authorization") authorization.push_back(View(metadata[i].value));
  }
  const absl::Status status = static_cast<const Authenticator*>(state)->Check(path, authorization);
  done(data, nullptr, 0, nullptr, 0, static_cast<grpc_status_code>(status.code()),
       PrintableMessage(status).c_str());
}

// Hands the files of the moment to each new connection; of one port.
class CertificateSource {
 public:
  explicit CertificateSource(const Reloaded<TlsFiles>* tls) : tls_(tls) {}

  // grpc_ssl_server_certificate_config_callback; `self` is this.
  static grpc_ssl_certificate_config_reload_status Fetch(
      void* self, grpc_ssl_server_certificate_config** config) {
    return static_cast<CertificateSource*>(self)->FetchNew(config);
  }

 private:
  grpc_ssl_certificate_config_reload_status FetchNew(grpc_ssl_server_certificate_config** config) {
    const std::shared_ptr<const TlsFiles> now = tls_->Get();
    const MutexLock lock(mutex_);
    if (now == given_) return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_UNCHANGED;
    const grpc_ssl_pem_key_cert_pair pair = {now->key.c_str(), now->certificate.c_str()};
    // gRPC 1.51 ends the process if there is no authority, asked for or not; any certificate does.
    const std::string& authorities = now->client_ca.empty() ? now->certificate : now->client_ca;
    *config = grpc_ssl_server_certificate_config_create(authorities.c_str(), &pair, 1);
    given_ = now;
    return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_NEW;
  }

  const Reloaded<TlsFiles>* const tls_;
  Mutex mutex_;
  std::shared_ptr<const TlsFiles> given_ ABSL_GUARDED_BY(mutex_);
};

// gRPC's C++ interface has neither certificates that change nor a look at the metadata of plain-text
// calls; its C interface has both.
class PortCredentials final : public grpc::ServerCredentials {
 public:
  PortCredentials(const Reloaded<TlsFiles>* tls, const Authenticator* authenticator)
      : source_(tls),
        credentials_(tls == nullptr ? grpc_insecure_server_credentials_create()
                                    : MakeTls(!tls->Get()->client_ca.empty())) {
    if (authenticator == nullptr) return;
    grpc_server_credentials_set_auth_metadata_processor(
        credentials_, {.process = ProcessMetadata,
                       .destroy = nullptr,
                       .state = const_cast<void*>(static_cast<const void*>(authenticator))});
  }
  ~PortCredentials() override { grpc_server_credentials_release(credentials_); }
  PortCredentials(const PortCredentials&) = delete;
  PortCredentials& operator=(const PortCredentials&) = delete;

  // The processor is set above, once and for all.
  void SetAuthMetadataProcessor(
      const std::shared_ptr<grpc::AuthMetadataProcessor>& /*processor*/) override {}

 private:
  grpc_server_credentials* MakeTls(bool client_certificates) {
    return grpc_ssl_server_credentials_create_with_options(
        grpc_ssl_server_credentials_create_options_using_config_fetcher(
            client_certificates ? GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY
                                : GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE,
            CertificateSource::Fetch, &source_));
  }

  int AddPortToServer(const std::string& address, grpc_server* server) override {
    return grpc_server_add_http2_port(server, address.c_str(), credentials_);
  }

  CertificateSource source_;
  grpc_server_credentials* const credentials_;
};

}  // namespace

std::shared_ptr<grpc::ServerCredentials> MakeServerCredentials(const Reloaded<TlsFiles>* tls,
                                                               const Authenticator* authenticator) {
  return std::make_shared<PortCredentials>(tls, authenticator);
}

}  // namespace deepencoder
