// Accepts connections and hands them to gRPC, whose own listener (1.51) has no bound on their number and
// ends for good at the first accept that finds no descriptor left.
#pragma once

#include <grpcpp/server_builder.h>
#include <sys/socket.h>
#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <thread>
#include <unordered_map>
#include <vector>

#include "absl/status/statusor.h"
#include "server/rpc/listen_socket.h"
#include "server/rpc/rpc_observer.h"

namespace deepencoder {

// Where connections of a socket go.
struct ConnectionSource {
  ListenSocket socket;
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> sink;
};

// Connections at a time.
struct ConnectionLimits {
  int64_t all;
  int64_t of_address;  // of IPv6: of a network of 64 bits. Unix sockets have none
};

class ConnectionAcceptor {
 public:
  // What comes beyond the limits is closed at once, and so is what comes while the process has no
  // descriptors left. `observer` may be null, and outlives this.
  static absl::StatusOr<std::unique_ptr<ConnectionAcceptor>> Create(
      std::vector<ConnectionSource> sources, const ConnectionLimits& limits, RpcObserver* observer);
  ~ConnectionAcceptor();
  ConnectionAcceptor(const ConnectionAcceptor&) = delete;
  ConnectionAcceptor& operator=(const ConnectionAcceptor&) = delete;

  // After the gRPC server's start.
  void Start();
  // Before the gRPC server's end; the sockets are closed.
  void Stop();

 private:
  ConnectionAcceptor(std::vector<ConnectionSource> sources, const ConnectionLimits& limits,
                     RpcObserver* observer, int wake, int spare);

  struct Connection {
    ino_t inode;  // of the socket
    std::optional<uint64_t> network;
  };

  void Run();
  void AcceptAll(const ConnectionSource& source);
  void Take(const ConnectionSource& source, int connection, const sockaddr_storage& peer);
  // Why one more of `network` is too much.
  std::optional<ConnectionRefusal> Excess(std::optional<uint64_t> network) const;
  void Remember(int descriptor, const Connection& connection);
  void Forget(std::optional<uint64_t> network);
  void RefuseWithoutDescriptors(const ConnectionSource& source);
  // Forgets the connections that gRPC has closed.
  void Sweep();
  void Refused(ConnectionRefusal why) const;

  std::vector<ConnectionSource> sources_;
  const ConnectionLimits limits_;
  RpcObserver* const observer_;
  const int wake_;  // eventfd: Stop
  int spare_;       // given up for a moment where no descriptor is left
  // By descriptor. gRPC closes it without a word; then the number stands for nothing or for another inode.
  std::unordered_map<int, Connection> open_;
  std::unordered_map<uint64_t, int64_t> of_network_;  // how many of open_; none is 0
  std::thread thread_;
};

}  // namespace deepencoder
