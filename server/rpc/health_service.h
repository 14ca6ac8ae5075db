// grpc.health.v1. gRPC's own implementation says SERVING for "" from the moment its port is open until
// it is told otherwise; this one starts at NOT_SERVING, so that no probe ever sees a server ready that
// has not warmed up. Raw (small_message.h), since it answers callers that have no token.
#pragma once

#include <grpcpp/support/server_callback.h>

#include <cstddef>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "server/engine/mutex.h"

namespace deepencoder {

using HealthBase = grpc::health::v1::Health::WithRawCallbackMethod_Check<
    grpc::health::v1::Health::WithRawCallbackMethod_Watch<grpc::health::v1::Health::Service>>;

// Watch calls at a time. A client has one for each of its connections to a service; all of them are told under
// a lock that Check waits for.
struct WatchLimits {
  size_t all = 4096;
  size_t of_a_client = 512;  // by its certificate or address, so that none takes the others' places
};

// Thread-safe. Must outlive the gRPC server it is registered with.
class HealthService final : public HealthBase {
 public:
  // Knows these services and "" (the whole server). Watch calls beyond `limits` are answered with
  // RESOURCE_EXHAUSTED.
  explicit HealthService(const std::vector<std::string>& services, const WatchLimits& limits = {});

  // Of all services; watchers are told.
  void SetServing(bool serving);
  // Ends every Watch call, which would otherwise keep the server's shutdown waiting.
  void Close();

  grpc::ServerUnaryReactor* Check(grpc::CallbackServerContext* context,
                                  const grpc::ByteBuffer* request,
                                  grpc::ByteBuffer* response) override;
  grpc::ServerWriteReactor<grpc::ByteBuffer>* Watch(grpc::CallbackServerContext* context,
                                                    const grpc::ByteBuffer* request) override;

 private:
  class Watcher;
  using ServingStatus = grpc::health::v1::HealthCheckResponse::ServingStatus;

  ServingStatus StatusOf(const std::string& service) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Whether `client` may have one more.
  absl::Status CheckRoom(const std::string& client) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::set<std::string> services_;
  const WatchLimits limits_;
  Mutex mutex_;
  bool serving_ ABSL_GUARDED_BY(mutex_) = false;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  std::unordered_map<const Watcher*, std::shared_ptr<Watcher>> watchers_ ABSL_GUARDED_BY(mutex_);
  std::unordered_map<std::string, size_t> of_client_ ABSL_GUARDED_BY(mutex_);  // of watchers_
};

}  // namespace deepencoder
