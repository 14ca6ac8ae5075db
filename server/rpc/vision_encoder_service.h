// deepencoder.v1.VisionEncoder over gRPC's callback API. Its methods are raw: messages are parsed and written
// here, so that a reply's rows go from the engine to the socket without a copy, and nothing is parsed before
// its size was looked at.
#pragma once

#include <grpcpp/support/server_callback.h>

#include <memory>
#include <set>

#include "absl/base/thread_annotations.h"
#include "deepencoder/v1/vision_encoder.grpc.pb.h"
#include "server/engine/mutex.h"
#include "server/rpc/call_context.h"
#include "server/rpc/encode_stream.h"

namespace deepencoder {

using VisionEncoderBase = v1::VisionEncoder::WithRawCallbackMethod_EncodeImage<
    v1::VisionEncoder::WithRawCallbackMethod_EncodeImages<
        v1::VisionEncoder::WithRawCallbackMethod_GetModelInfo<v1::VisionEncoder::Service>>>;

// Thread-safe. Must outlive the gRPC server it is registered with.
class VisionEncoderService final : public VisionEncoderBase {
 public:
  explicit VisionEncoderService(RpcContext rpc);

  // Calls from now on use `serving`; before the first one they are answered UNAVAILABLE. Calls that are
  // under way keep what they began with.
  void SetServing(std::shared_ptr<const Serving> serving);

  // New calls are answered UNAVAILABLE; streams end once their images in flight are answered.
  void Drain();

  // What a new call uses. UNAVAILABLE while starting or draining.
  absl::StatusOr<std::shared_ptr<const Serving>> Admit();

  grpc::ServerUnaryReactor* EncodeImage(grpc::CallbackServerContext* context,
                                        const grpc::ByteBuffer* request,
                                        grpc::ByteBuffer* response) override;
  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* EncodeImages(
      grpc::CallbackServerContext* context) override;
  grpc::ServerUnaryReactor* GetModelInfo(grpc::CallbackServerContext* context,
                                         const grpc::ByteBuffer* request,
                                         grpc::ByteBuffer* response) override;

 private:
  const RpcContext rpc_;
  Mutex mutex_;
  std::shared_ptr<const Serving> serving_ ABSL_GUARDED_BY(mutex_);
  bool draining_ ABSL_GUARDED_BY(mutex_) = false;
  std::set<EncodeStream*> streams_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace deepencoder
