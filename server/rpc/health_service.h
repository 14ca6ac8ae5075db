// grpc.health.v1. gRPC's own implementation says SERVING for "" from the moment its port is open until
// it is told otherwise; this one starts at NOT_SERVING, so that no probe ever sees a server ready that
// has not warmed up.
#pragma once

#include <grpcpp/support/server_callback.h>

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "server/engine/mutex.h"

namespace deepencoder {

// Thread-safe. Must outlive the gRPC server it is registered with.
class HealthService final : public grpc::health::v1::Health::CallbackService {
 public:
  // Knows these services and "" (the whole server).
  explicit HealthService(const std::vector<std::string>& services);

  // Of all services; watchers are told.
  void SetServing(bool serving);
  // Ends every Watch call, which would otherwise keep the server's shutdown waiting.
  void Close();

  grpc::ServerUnaryReactor* Check(grpc::CallbackServerContext* context,
                                  const grpc::health::v1::HealthCheckRequest* request,
                                  grpc::health::v1::HealthCheckResponse* response) override;
  grpc::ServerWriteReactor<grpc::health::v1::HealthCheckResponse>* Watch(
      grpc::CallbackServerContext* context,
      const grpc::health::v1::HealthCheckRequest* request) override;

 private:
  class Watcher;
  using ServingStatus = grpc::health::v1::HealthCheckResponse::ServingStatus;

  ServingStatus StatusOf(const std::string& service) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::set<std::string> services_;
  Mutex mutex_;
  bool serving_ ABSL_GUARDED_BY(mutex_) = false;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  std::set<std::shared_ptr<Watcher>> watchers_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace deepencoder
