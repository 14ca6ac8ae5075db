#include "server/rpc/grpc_server.h"

#include <grpcpp/channel.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/resource_quota.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server_builder.h>
#include <grpcpp/support/channel_arguments.h>

#include <charconv>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "server/rpc/hold_grpc.h"

namespace deepencoder {
namespace {

// What a request holds beside its image. An image somewhat over the limit is thus still read, and
// refused by a text that names the limit and the flag.
constexpr int64_t kMessageHeadroom = int64_t{1} << 20;

bool IsUnix(std::string_view address) { return address.starts_with("unix:"); }

absl::Status CheckAddress(const std::string& address) {
  if (IsUnix(address)) {
    return address.size() > 5 ? absl::OkStatus()
                              : absl::InvalidArgumentError("unix: needs a path behind it");
  }
  const size_t colon = address.rfind(':');
  int port = -1;
  if (colon != std::string::npos && colon > 0) {
    const char* end = address.data() + address.size();
    const auto [stop, error] = std::from_chars(address.data() + colon + 1, end, port);
    if (error != std::errc() || stop != end || port > 65535) port = -1;
  }
  if (port >= 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("'", address, "' is no address: expected HOST:PORT, [IPV6]:PORT or unix:PATH"));
}

// `address` with the port that was taken.
std::string WithPort(const std::string& address, int port) {
  if (IsUnix(address)) return address;
  return absl::StrCat(address.substr(0, address.rfind(':') + 1), port);
}

}  // namespace

GrpcServer::GrpcServer(std::unique_ptr<grpc::Server> server, std::vector<std::string> addresses)
    : server_(std::move(server)), addresses_(std::move(addresses)) {}

absl::StatusOr<std::unique_ptr<GrpcServer>> GrpcServer::Start(
    const GrpcServerOptions& options, const std::vector<grpc::Service*>& services) {
  HoldGrpc();
  // Process-wide in gRPC: once asked for, every later server of the process has it.
  if (options.reflection) grpc::reflection::InitProtoReflectionServerBuilderPlugin();

  grpc::ServerBuilder builder;
  std::vector<int> ports(options.listen.size(), 0);
  for (size_t i = 0; i < options.listen.size(); ++i) {
    if (absl::Status status = CheckAddress(options.listen[i]); !status.ok()) return status;
    builder.AddListeningPort(options.listen[i], grpc::InsecureServerCredentials(), &ports[i]);
  }
  // A port that another process serves is an error, not something to share with it.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.SetMaxReceiveMessageSize(static_cast<int>(options.max_image_bytes + kMessageHeadroom));
  builder.SetMaxSendMessageSize(-1);
  grpc::ResourceQuota quota("deepencoder");
  quota.Resize(static_cast<size_t>(options.memory));
  builder.SetResourceQuota(quota);
  for (grpc::Service* service : services) builder.RegisterService(service);

  std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr) {
    for (size_t i = 0; i < ports.size(); ++i) {
      if (ports[i] == 0) {
        return absl::UnavailableError(
            absl::StrCat("cannot listen on ", options.listen[i],
                         ": the address is in use, not of this machine, or not permitted"));
      }
    }
    return absl::InternalError("the gRPC server did not start");
  }
  std::vector<std::string> addresses;
  for (size_t i = 0; i < ports.size(); ++i) {
    addresses.push_back(WithPort(options.listen[i], ports[i]));
  }
  return std::unique_ptr<GrpcServer>(new GrpcServer(std::move(server), std::move(addresses)));
}

std::shared_ptr<grpc::Channel> GrpcServer::InProcessChannel() {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(-1);
  return server_->InProcessChannel(arguments);
}

void GrpcServer::Shutdown(absl::Time deadline) { server_->Shutdown(absl::ToChronoTime(deadline)); }

}  // namespace deepencoder
