// deepencoder.v1.Admin over gRPC's callback API; for an address of its own.
#pragma once

#include <grpcpp/support/server_callback.h>

#include <functional>
#include <string>

#include "deepencoder/v1/admin.grpc.pb.h"
#include "server/reloader.h"

namespace deepencoder {

// Thread-safe. Must outlive the gRPC server it is registered with.
class AdminService final : public v1::Admin::CallbackService {
 public:
  // As Reloader::Start.
  using Reload = std::function<void(const std::string& folder, Reloader::Done done)>;

  explicit AdminService(Reload reload) : reload_(std::move(reload)) {}

  grpc::ServerUnaryReactor* ReloadModel(grpc::CallbackServerContext* context,
                                        const v1::ReloadModelRequest* request,
                                        v1::ReloadModelResponse* response) override;

 private:
  const Reload reload_;
};

}  // namespace deepencoder
