// Accepts connections and hands them to gRPC, whose own listener (1.51) has no bound on their number and
// ends for good at the first accept that finds no descriptor left.
#pragma once

#include <grpcpp/server_builder.h>
#include <sys/types.h>

#include <cstdint>
#include <memory>
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

class ConnectionAcceptor {
 public:
  // At most `max_connections` at a time are handed on; what comes beyond is closed at once, and so is
  // what comes while the process has no descriptors left. `observer` may be null, and outlives this.
  static absl::StatusOr<std::unique_ptr<ConnectionAcceptor>> Create(
      std::vector<ConnectionSource> sources, int64_t max_connections, RpcObserver* observer);
  ~ConnectionAcceptor();
  ConnectionAcceptor(const ConnectionAcceptor&) = delete;
  ConnectionAcceptor& operator=(const ConnectionAcceptor&) = delete;

  // After the gRPC server's start.
  void Start();
  // Before the gRPC server's end; the sockets are closed.
  void Stop();

 private:
  ConnectionAcceptor(std::vector<ConnectionSource> sources, int64_t max_connections,
                     RpcObserver* observer, int wake, int spare);

  void Run();
  void AcceptAll(const ConnectionSource& source);
  void Take(const ConnectionSource& source, int connection);
  void RefuseWithoutDescriptors(const ConnectionSource& source);
  // Forgets the connections that gRPC has closed.
  void Sweep();
  void Refused(ConnectionRefusal why) const;

  std::vector<ConnectionSource> sources_;
  const int64_t max_connections_;
  RpcObserver* const observer_;
  const int wake_;  // eventfd: Stop
  int spare_;       // given up for a moment where no descriptor is left
  // Descriptor -> inode of the socket behind it. gRPC closes it without a word; then the number stands
  // for nothing or for another inode.
  std::unordered_map<int, ino_t> open_;
  std::thread thread_;
};

}  // namespace deepencoder
