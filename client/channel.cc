#include "client/channel.h"

#include <arpa/inet.h>
#include <grpc/grpc.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/channel_arguments.h>
#include <grpcpp/support/client_interceptor.h>
#include <netinet/in.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace deepencoder::client {
namespace {

constexpr char kAuthorizationKey[] = "authorization";

// gRPC 1.51 joins its poller, which may sleep for 10 seconds, when its last object goes: so the library
// is held until the process ends.
void HoldGrpc() {
  [[maybe_unused]] static const bool held = [] {
    grpc_init();
    return true;
  }();
}

// Puts the token on every call, whichever stub makes it. gRPC's call credentials would do so on
// encrypted channels alone, and not on a unix socket.
class TokenInterceptor final : public grpc::experimental::Interceptor {
 public:
  explicit TokenInterceptor(const std::string* authorization) : authorization_(authorization) {}

  void Intercept(grpc::experimental::InterceptorBatchMethods* methods) override {
    if (methods->QueryInterceptionHookPoint(
            grpc::experimental::InterceptionHookPoints::PRE_SEND_INITIAL_METADATA)) {
      methods->GetSendInitialMetadata()->emplace(kAuthorizationKey, *authorization_);
    }
    methods->Proceed();
  }

 private:
  const std::string* const authorization_;
};

// Belongs to the channel, and so outlives its calls.
class TokenInterceptorFactory final : public grpc::experimental::ClientInterceptorFactoryInterface {
 public:
  explicit TokenInterceptorFactory(const std::string& token) : authorization_("Bearer " + token) {}

  grpc::experimental::Interceptor* CreateClientInterceptor(
      grpc::experimental::ClientRpcInfo* /*info*/) override {
    return new TokenInterceptor(&authorization_);
  }

 private:
  const std::string authorization_;
};

// What is sent to `target` stays on this machine. A name that only begins like an address does not:
// 127.0.0.1.example.com.
bool IsLocal(std::string_view target) {
  if (target.starts_with("unix:")) return true;
  std::string host(target.substr(0, target.rfind(':')));
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  in_addr address;
  if (inet_pton(AF_INET, host.c_str(), &address) == 1) {
    return (ntohl(address.s_addr) >> IN_CLASSA_NSHIFT) == IN_LOOPBACKNET;
  }
  return host == "localhost" || host == "::1";
}

absl::Status CheckToken(const std::string& target, const ClientOptions& options) {
  if (options.token.empty()) return absl::OkStatus();
  if (!options.tls && !IsLocal(target)) {
    return absl::InvalidArgumentError(
        absl::StrCat("a token could be read on its way to ", target,
                     ": use TLS, a loopback address or a unix socket"));
  }
  if (std::any_of(options.token.begin(), options.token.end(),
                  [](char c) { return c <= 0x20 || c >= 0x7F; })) {
    return absl::InvalidArgumentError(
        "the token has blanks or characters that are not printable ASCII");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReadPem(const std::string& path) {
  if (path.empty()) return std::string();
  absl::StatusOr<Image> file = ReadImageFile(path);  // any file's bytes
  if (!file.ok()) return file.status();
  return std::move(file->encoded);
}

absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> MakeCredentials(
    const ClientOptions& options) {
  if (!options.tls) return grpc::InsecureChannelCredentials();
  const TlsOptions& tls = *options.tls;
  if (tls.client_certificate.empty() != tls.client_key.empty()) {
    return absl::InvalidArgumentError("a client certificate and its key go together");
  }
  grpc::SslCredentialsOptions ssl;
  for (const auto& [path, content] : {std::pair{&tls.root_certificates, &ssl.pem_root_certs},
                                      {&tls.client_certificate, &ssl.pem_cert_chain},
                                      {&tls.client_key, &ssl.pem_private_key}}) {
    absl::StatusOr<std::string> pem = ReadPem(*path);
    if (!pem.ok()) return pem.status();
    *content = *std::move(pem);
  }
  return grpc::SslCredentials(ssl);
}

}  // namespace

absl::StatusOr<std::shared_ptr<grpc::Channel>> OpenChannel(const std::string& target,
                                                           const ClientOptions& options) {
  HoldGrpc();
  if (target.empty()) return absl::InvalidArgumentError("the server's address is empty");
  if (absl::Status status = CheckToken(target, options); !status.ok()) return status;
  const auto credentials = MakeCredentials(options);
  if (!credentials.ok()) return credentials.status();
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(-1);  // a reply in fp32 with 32 tiles has 20 MB
  arguments.SetMaxSendMessageSize(-1);     // the server says what is too large, and by how much
  // A server that comes back is found soon: gRPC's own delay grows to two minutes, and is shared by all
  // channels of the process to that address.
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS,
                   5000);  // in fact how long an attempt may take
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 2000);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  // A reply is 0.7 to 20 MB: in large frames, without waiting for window updates, read in large pieces, it crosses
  // loopback in about a fifth less time.
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_FRAME_SIZE, 4 << 20);
  arguments.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, 8 << 20);
  arguments.SetInt(GRPC_ARG_TCP_READ_CHUNK_SIZE, 1 << 20);
  arguments.SetLoadBalancingPolicyName("round_robin");
  // A proxy of the environment (http_proxy) is elsewhere: it would read the token, and knows another localhost.
  if (IsLocal(target)) arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  if (options.tls && !options.tls->server_name.empty()) {
    arguments.SetSslTargetNameOverride(options.tls->server_name);
  }
  std::vector<std::unique_ptr<grpc::experimental::ClientInterceptorFactoryInterface>> interceptors;
  if (!options.token.empty()) {
    interceptors.push_back(std::make_unique<TokenInterceptorFactory>(options.token));
  }
  return grpc::experimental::CreateCustomChannelWithInterceptors(target, *credentials, arguments,
                                                                 std::move(interceptors));
}

}  // namespace deepencoder::client
