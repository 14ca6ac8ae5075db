// deepencoder.v1.SharedMemory over gRPC's callback API.
#pragma once

#include <grpcpp/support/server_callback.h>

#include "deepencoder/v1/shared_memory.grpc.pb.h"
#include "server/rpc/call_context.h"

namespace deepencoder {

// Thread-safe. Must outlive the gRPC server it is registered with.
class SharedMemoryService final : public v1::SharedMemory::CallbackService {
 public:
  explicit SharedMemoryService(RpcContext rpc);

  grpc::ServerUnaryReactor* RegisterRegion(grpc::CallbackServerContext* context,
                                           const v1::RegisterRegionRequest* request,
                                           v1::RegisterRegionResponse* response) override;
  grpc::ServerUnaryReactor* UnregisterRegion(grpc::CallbackServerContext* context,
                                             const v1::UnregisterRegionRequest* request,
                                             v1::UnregisterRegionResponse* response) override;

 private:
  const RpcContext rpc_;
};

}  // namespace deepencoder
