#include "server/rpc/grpc_server.h"

#include <grpc/grpc.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/resource_quota.h>
#include <grpcpp/server_builder.h>
#include <sys/resource.h>

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "server/rpc/hold_grpc.h"
#include "server/rpc/listen_socket.h"
#include "server/rpc/message_buffer.h"
#include "server/rpc/server_credentials.h"

namespace deepencoder {
namespace {

// How long a new connection may take to say what it is: TLS, then HTTP/2.
constexpr int kHandshakeMs = 10'000;
constexpr int kKeepaliveTimeoutMs = 20'000;
// Descriptors for what every server has but connections: the model, the log, metrics, gRPC's own.
constexpr int64_t kUsualDescriptors = 128;
constexpr int64_t kFewestConnections = 16;
// gRPC's reflection service is of the blocking kind: each of its streams holds a thread.
constexpr int kMaxThreads = 16;
// gRPC inflates a message before it looks at its size: a megabyte sent can become a gigabyte held. Images
// are compressed already.
constexpr int kOnlyIdentity = 1 << GRPC_COMPRESS_NONE;

// gRPC has milliseconds in an int, the largest of which is for ever.
int Milliseconds(absl::Duration duration) {
  return static_cast<int>(std::clamp<int64_t>(absl::ToInt64Milliseconds(duration), 1, INT32_MAX));
}

int64_t DescriptorLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return INT64_MAX;
  return static_cast<int64_t>(limit.rlim_cur);
}

int64_t MaxConnections(const ConnectionOptions& options) {
  const int64_t room = DescriptorLimit() - kUsualDescriptors - options.other_descriptors;
  return std::min(options.max_connections, std::max(kFewestConnections, room));
}

void SetBounds(grpc::ServerBuilder& builder, const GrpcServerOptions& options) {
  builder.SetMaxReceiveMessageSize(MaxMessageBytes(options.max_image_bytes));
  builder.SetMaxSendMessageSize(-1);
  const ConnectionOptions& connections = options.connections;
  for (const auto& [argument, value] :
       {std::pair{GRPC_ARG_MAX_CONCURRENT_STREAMS, static_cast<int>(connections.max_streams)},
        {GRPC_ARG_MAX_METADATA_SIZE, static_cast<int>(connections.max_metadata)},
        {GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, kHandshakeMs},
        {GRPC_ARG_KEEPALIVE_TIME_MS, Milliseconds(connections.keepalive)},
        {GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs},
        {GRPC_ARG_MAX_CONNECTION_IDLE_MS, Milliseconds(connections.max_idle)},
        {GRPC_ARG_MAX_CONNECTION_AGE_MS, Milliseconds(connections.max_age)},
        {GRPC_ARG_MAX_CONNECTION_AGE_GRACE_MS, Milliseconds(connections.max_age_grace)},
        {GRPC_COMPRESSION_CHANNEL_ENABLED_ALGORITHMS_BITSET, kOnlyIdentity}}) {
    builder.AddChannelArgument(argument, value);
  }
  grpc::ResourceQuota quota("deepencoder");
  quota.Resize(static_cast<size_t>(options.memory));
  quota.SetMaxThreads(kMaxThreads);
  builder.SetResourceQuota(quota);
}

// `address` with the port that was taken.
std::string WithPort(const std::string& address, const ListenSocket& socket) {
  if (socket.is_unix()) return address;
  return absl::StrCat(address.substr(0, address.rfind(':') + 1), socket.port());
}

absl::Status CannotListen(const std::string& address, const absl::Status& why) {
  if (absl::IsInvalidArgument(why)) return why;
  return {why.code(), absl::StrCat("cannot listen on ", address, ": ", std::string(why.message()))};
}

}  // namespace

absl::StatusOr<std::unique_ptr<GrpcServer>> GrpcServer::Start(
    const GrpcServerOptions& options, const std::vector<grpc::Service*>& services) {
  HoldGrpc();
  // Process-wide in gRPC: once asked for, every later server of the process has it.
  if (options.reflection) grpc::reflection::InitProtoReflectionServerBuilderPlugin();

  std::unique_ptr<GrpcServer> server(new GrpcServer);
  grpc::ServerBuilder builder;
  std::vector<ConnectionSource> sources;
  for (const std::string& address : options.listen) {
    absl::StatusOr<std::vector<ListenSocket>> sockets = ListenSocket::Listen(address);
    if (!sockets.ok()) return CannotListen(address, sockets.status());
    server->addresses_.push_back(WithPort(address, sockets->front()));
    for (ListenSocket& socket : *sockets) {
      // A unix socket stays on this machine: the kernel decides who may open its file.
      const Reloaded<TlsFiles>* tls = socket.is_unix() ? nullptr : options.tls;
      server->exposed_ |= !socket.is_local();
      using Builder = grpc::ServerBuilder::experimental_type;
      auto sink = builder.experimental().AddExternalConnectionAcceptor(
          Builder::ExternalConnectionType::FROM_FD,
          MakeServerCredentials(tls, options.authenticator));
      sources.push_back({std::move(socket), std::move(sink)});
    }
  }
  SetBounds(builder, options);
  for (grpc::Service* service : services) builder.RegisterService(service);

  auto acceptor =
      ConnectionAcceptor::Create(std::move(sources),
                                 {.all = MaxConnections(options.connections),
                                  .of_address = options.connections.max_connections_per_address},
                                 options.observer);
  if (!acceptor.ok()) return acceptor.status();
  server->acceptor_ = *std::move(acceptor);
  server->server_ = builder.BuildAndStart();
  if (server->server_ == nullptr) return absl::InternalError("the gRPC server did not start");
  server->acceptor_->Start();
  return server;
}

GrpcServer::~GrpcServer() = default;

void GrpcServer::Shutdown(absl::Time deadline) {
  acceptor_->Stop();
  server_->Shutdown(absl::ToChronoTime(deadline));
}

}  // namespace deepencoder
