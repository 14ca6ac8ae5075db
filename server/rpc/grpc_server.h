// The listening gRPC server around the services.
#pragma once

#include <grpcpp/server.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/rpc/authenticator.h"
#include "server/rpc/connection_acceptor.h"
#include "server/rpc/rpc_observer.h"
#include "server/security/reloaded.h"
#include "server/security/tls_files.h"

namespace deepencoder {

// Durations: infinite is no bound.
struct ConnectionOptions {
  int64_t max_connections = 1024;              // of all addresses
  int64_t other_descriptors = 0;               // to be left for the caller's own use
  int64_t max_connections_per_address = 1024;  // of those of one client
  int64_t max_streams = 1024;                  // calls at a time of a connection
  int64_t max_metadata = int64_t{16} << 10;
  absl::Duration keepalive = absl::InfiniteDuration();
  absl::Duration max_idle = absl::InfiniteDuration();
  absl::Duration max_age = absl::InfiniteDuration(), max_age_grace = absl::InfiniteDuration();
};

// Pointers must outlive the server.
struct GrpcServerOptions {
  std::vector<std::string> listen;              // "host:port", "[ipv6]:port", "unix:path"
  int64_t memory = int64_t{1} << 30;            // bytes gRPC may use for messages in transit
  int64_t max_image_bytes = int64_t{32} << 20;  // of a request's image
  bool reflection = false;
  const Reloaded<TlsFiles>* tls = nullptr;       // of every HOST:PORT; null: plain text
  const Authenticator* authenticator = nullptr;  // of every address; null: no tokens
  ConnectionOptions connections = {};
  RpcObserver* observer = nullptr;  // may be null
};

class GrpcServer {
 public:
  // `services` must outlive the server.
  // Errors: INVALID_ARGUMENT (not an address), UNAVAILABLE (cannot listen there, no descriptors).
  static absl::StatusOr<std::unique_ptr<GrpcServer>> Start(
      const GrpcServerOptions& options, const std::vector<grpc::Service*>& services);

  ~GrpcServer();

  // As in the options, with the real ports.
  const std::vector<std::string>& addresses() const { return addresses_; }

  // Other machines can reach an address of it, over TLS or not.
  bool exposed() const { return exposed_; }

  // Accepts no more calls and waits for those under way; at `deadline` cancels them.
  void Shutdown(absl::Time deadline);

 private:
  GrpcServer() = default;

  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<ConnectionAcceptor> acceptor_;  // ends before the server that it feeds
  std::vector<std::string> addresses_;
  bool exposed_ = false;
};

}  // namespace deepencoder
