// deepencoder.v1.SharedMemory over gRPC's callback API, raw (small_message.h).
#pragma once

#include <grpcpp/support/server_callback.h>

#include "deepencoder/v1/shared_memory.grpc.pb.h"
#include "server/rpc/call_context.h"

namespace deepencoder {

using SharedMemoryBase = v1::SharedMemory::WithRawCallbackMethod_RegisterRegion<
    v1::SharedMemory::WithRawCallbackMethod_UnregisterRegion<v1::SharedMemory::Service>>;

// Thread-safe. Must outlive the gRPC server it is registered with.
class SharedMemoryService final : public SharedMemoryBase {
 public:
  explicit SharedMemoryService(RpcContext rpc);

  grpc::ServerUnaryReactor* RegisterRegion(grpc::CallbackServerContext* context,
                                           const grpc::ByteBuffer* request,
                                           grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* UnregisterRegion(grpc::CallbackServerContext* context,
                                             const grpc::ByteBuffer* request,
                                             grpc::ByteBuffer* response) override;

 private:
  absl::Status Register(const v1::RegisterRegionRequest& request,
                        v1::RegisterRegionResponse& response) const;

  const RpcContext rpc_;
};

}  // namespace deepencoder
