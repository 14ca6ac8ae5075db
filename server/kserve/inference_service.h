// inference.GRPCInferenceService, KServe's protocol, over gRPC's callback API: the same engine,
// limits, deadlines, cancellation and metrics as deepencoder.v1.VisionEncoder. The methods are raw, so that
// embeddings go from the engine to the socket without a copy, and nothing is parsed before its size was
// looked at.
#pragma once

#include <grpcpp/support/server_callback.h>

#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "inference/grpc_service.grpc.pb.h"
#include "server/rpc/call_context.h"

namespace deepencoder::kserve {

using Kserve = inference::GRPCInferenceService;
using WithProbes =
    Kserve::WithRawCallbackMethod_ServerLive<Kserve::WithRawCallbackMethod_ServerReady<
        Kserve::WithRawCallbackMethod_ModelReady<Kserve::Service>>>;
using WithDescriptions =
    Kserve::WithRawCallbackMethod_ServerMetadata<Kserve::WithRawCallbackMethod_ModelMetadata<
        Kserve::WithRawCallbackMethod_ModelConfig<WithProbes>>>;
using WithSystemRegions = Kserve::WithRawCallbackMethod_SystemSharedMemoryStatus<
    Kserve::WithRawCallbackMethod_SystemSharedMemoryRegister<
        Kserve::WithRawCallbackMethod_SystemSharedMemoryUnregister<WithDescriptions>>>;
using WithCudaRegions = Kserve::WithRawCallbackMethod_CudaSharedMemoryStatus<
    Kserve::WithRawCallbackMethod_CudaSharedMemoryRegister<
        Kserve::WithRawCallbackMethod_CudaSharedMemoryUnregister<WithSystemRegions>>>;
using InferenceBase = Kserve::WithRawCallbackMethod_ModelInfer<
    Kserve::WithRawCallbackMethod_ModelStreamInfer<WithCudaRegions>>;

// Thread-safe. Must outlive the gRPC server it is registered with.
class InferenceService final : public InferenceBase {
 public:
  // What a new call uses; UNAVAILABLE while the server is starting or draining.
  using Admit = std::function<absl::StatusOr<std::shared_ptr<const Serving>>()>;

  InferenceService(RpcContext rpc, Admit admit);

  grpc::ServerUnaryReactor* ServerLive(grpc::CallbackServerContext* context,
                                       const grpc::ByteBuffer* request,
                                       grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* ServerReady(grpc::CallbackServerContext* context,
                                        const grpc::ByteBuffer* request,
                                        grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* ModelReady(grpc::CallbackServerContext* context,
                                       const grpc::ByteBuffer* request,
                                       grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* ServerMetadata(grpc::CallbackServerContext* context,
                                           const grpc::ByteBuffer* request,
                                           grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* ModelMetadata(grpc::CallbackServerContext* context,
                                          const grpc::ByteBuffer* request,
                                          grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* ModelConfig(grpc::CallbackServerContext* context,
                                        const grpc::ByteBuffer* request,
                                        grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* ModelInfer(grpc::CallbackServerContext* context,
                                       const grpc::ByteBuffer* request,
                                       grpc::ByteBuffer* response) override;
  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* ModelStreamInfer(
      grpc::CallbackServerContext* context) override;

  grpc::ServerUnaryReactor* SystemSharedMemoryStatus(grpc::CallbackServerContext* context,
                                                     const grpc::ByteBuffer* request,
                                                     grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* SystemSharedMemoryRegister(grpc::CallbackServerContext* context,
                                                       const grpc::ByteBuffer* request,
                                                       grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* SystemSharedMemoryUnregister(grpc::CallbackServerContext* context,
                                                         const grpc::ByteBuffer* request,
                                                         grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* CudaSharedMemoryStatus(grpc::CallbackServerContext* context,
                                                   const grpc::ByteBuffer* request,
                                                   grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* CudaSharedMemoryRegister(grpc::CallbackServerContext* context,
                                                     const grpc::ByteBuffer* request,
                                                     grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* CudaSharedMemoryUnregister(grpc::CallbackServerContext* context,
                                                       const grpc::ByteBuffer* request,
                                                       grpc::ByteBuffer* response) override;

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
