// The listening gRPC server around the services.
#pragma once

#include <grpcpp/server.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace deepencoder {

struct GrpcServerOptions {
  std::vector<std::string> listen;              // "host:port", "[ipv6]:port", "unix:path"
  int64_t memory = int64_t{1} << 30;            // bytes gRPC may use for messages in transit
  int64_t max_image_bytes = int64_t{32} << 20;  // of a request's image
  bool reflection = true;
};

class GrpcServer {
 public:
  // `services` must outlive the server.
  // Errors: INVALID_ARGUMENT (not an address), UNAVAILABLE (cannot listen there).
  static absl::StatusOr<std::unique_ptr<GrpcServer>> Start(
      const GrpcServerOptions& options, const std::vector<grpc::Service*>& services);

  // As in the options, with the real ports.
  const std::vector<std::string>& addresses() const { return addresses_; }

  // A channel to this server without a socket.
  std::shared_ptr<grpc::Channel> InProcessChannel();

  // Accepts no more calls and waits for those under way; at `deadline` cancels them.
  void Shutdown(absl::Time deadline);

 private:
  GrpcServer(std::unique_ptr<grpc::Server> server, std::vector<std::string> addresses);

  std::unique_ptr<grpc::Server> server_;
  std::vector<std::string> addresses_;
};

}  // namespace deepencoder
