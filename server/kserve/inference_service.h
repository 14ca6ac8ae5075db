// inference.GRPCInferenceService, KServe's protocol, over gRPC's callback API: the same engine,
// limits, deadlines, cancellation and metrics as deepencoder.v1.VisionEncoder. ModelInfer is raw,
// so that embeddings go from the engine to the socket without a copy.
#pragma once

#include <grpcpp/support/server_callback.h>

#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "inference/grpc_service.grpc.pb.h"
#include "server/rpc/call_context.h"

namespace deepencoder::kserve {

using InferenceBase = inference::GRPCInferenceService::WithRawCallbackMethod_ModelInfer<
    inference::GRPCInferenceService::CallbackService>;

// Thread-safe. Must outlive the gRPC server it is registered with.
class InferenceService final : public InferenceBase {
 public:
  // What a new call uses; UNAVAILABLE while the server is starting or draining.
  using Admit = std::function<absl::StatusOr<std::shared_ptr<const Serving>>()>;

  InferenceService(RpcContext rpc, Admit admit);

  grpc::ServerUnaryReactor* ServerLive(grpc::CallbackServerContext* context,
                                       const inference::ServerLiveRequest* request,
                                       inference::ServerLiveResponse* response) override;
  grpc::ServerUnaryReactor* ServerReady(grpc::CallbackServerContext* context,
                                        const inference::ServerReadyRequest* request,
                                        inference::ServerReadyResponse* response) override;
  grpc::ServerUnaryReactor* ModelReady(grpc::CallbackServerContext* context,
                                       const inference::ModelReadyRequest* request,
                                       inference::ModelReadyResponse* response) override;
  grpc::ServerUnaryReactor* ServerMetadata(grpc::CallbackServerContext* context,
                                           const inference::ServerMetadataRequest* request,
                                           inference::ServerMetadataResponse* response) override;
  grpc::ServerUnaryReactor* ModelMetadata(grpc::CallbackServerContext* context,
                                          const inference::ModelMetadataRequest* request,
                                          inference::ModelMetadataResponse* response) override;
  grpc::ServerUnaryReactor* ModelConfig(grpc::CallbackServerContext* context,
                                        const inference::ModelConfigRequest* request,
                                        inference::ModelConfigResponse* response) override;
  grpc::ServerUnaryReactor* ModelInfer(grpc::CallbackServerContext* context,
                                       const grpc::ByteBuffer* request,
                                       grpc::ByteBuffer* response) override;
  grpc::ServerBidiReactor<inference::ModelInferRequest, inference::ModelStreamInferResponse>*
  ModelStreamInfer(grpc::CallbackServerContext* context) override;

  grpc::ServerUnaryReactor* SystemSharedMemoryStatus(
      grpc::CallbackServerContext* context,
      const inference::SystemSharedMemoryStatusRequest* request,
      inference::SystemSharedMemoryStatusResponse* response) override;
  grpc::ServerUnaryReactor* SystemSharedMemoryRegister(
      grpc::CallbackServerContext* context,
      const inference::SystemSharedMemoryRegisterRequest* request,
      inference::SystemSharedMemoryRegisterResponse* response) override;
  grpc::ServerUnaryReactor* SystemSharedMemoryUnregister(
      grpc::CallbackServerContext* context,
      const inference::SystemSharedMemoryUnregisterRequest* request,
      inference::SystemSharedMemoryUnregisterResponse* response) override;
  grpc::ServerUnaryReactor* CudaSharedMemoryStatus(
      grpc::CallbackServerContext* context, const inference::CudaSharedMemoryStatusRequest* request,
      inference::CudaSharedMemoryStatusResponse* response) override;
  grpc::ServerUnaryReactor* CudaSharedMemoryRegister(
      grpc::CallbackServerContext* context,
      const inference::CudaSharedMemoryRegisterRequest* request,
      inference::CudaSharedMemoryRegisterResponse* response) override;
  grpc::ServerUnaryReactor* CudaSharedMemoryUnregister(
      grpc::CallbackServerContext* context,
      const inference::CudaSharedMemoryUnregisterRequest* request,
      inference::CudaSharedMemoryUnregisterResponse* response) override;

 private:
  // A call about regions: UNIMPLEMENTED or PERMISSION_DENIED before `act`.
  grpc::ServerUnaryReactor* WithRegions(
      grpc::CallbackServerContext* context, Method method,
      const std::function<absl::Status(RegionTable& regions)>& act);
  using Fill = std::function<absl::Status(const Serving& serving)>;
  // A call that only asks: `fill` makes its response, or says why not.
  grpc::ServerUnaryReactor* Describe(grpc::CallbackServerContext* context, Method method,
                                     const Fill& fill);

  const RpcContext rpc_;
  const Admit admit_;
};

}  // namespace deepencoder::kserve
