// What the calls of the service share.
#pragma once

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "deepencoder/v1/vision_encoder.pb.h"
#include "server/engine/engine.h"
#include "server/log.h"
#include "server/rpc/call_regions.h"
#include "server/rpc/rpc_observer.h"
#include "server/rpc/translate.h"
#include "server/trace/tracer.h"

namespace grpc {
class CallbackServerContext;
class ServerContextBase;
}  // namespace grpc

namespace deepencoder {

class Authenticator;
class PendingReplies;
class RequestLimit;

// An engine and what it serves. Calls hold it while they use it, so it can be replaced at any time.
struct Serving {
  std::shared_ptr<Engine> engine;
  v1::ModelInfo info;
};

struct RpcContext {
  RequestRules rules;
  int64_t max_image_pixels = 0;
  int stream_window = 64;                        // images in flight of one EncodeImages call
  RequestLimit* requests = nullptr;              // calls that encode; null: no bound
  const Authenticator* authenticator = nullptr;  // of the ports; null: no tokens
  PendingReplies* replies = nullptr;             // null: clients may leave replies untaken
  RpcObserver* observer;                         // outlives the service
  const Logger* logger;                          // outlives the service
  const Tracer* tracer = nullptr;                // null: no tracing; else outlives the service
  RegionTable* regions = nullptr;  // of shared memory, outlives the service; null: none
};

// A request that is ready for the engine.
struct ImageCall {
  EncodeJob job;
  std::optional<RegionWindow> reply;  // where the rows go; nothing: into the reply
};
absl::StatusOr<ImageCall> MakeCall(const std::shared_ptr<const v1::EncodeImageRequest>& request,
                                   const RequestRules& rules, const FindRegion& find_region,
                                   std::string request_id, absl::Time deadline,
                                   std::shared_ptr<CancelFlag> cancel);

// The reply to a request. Errors: WriteRows'.
absl::StatusOr<grpc::ByteBuffer> WriteReply(std::string id, const EncodeResult& result,
                                            const std::optional<RegionWindow>& window);

// Has `replies`, unless null, end the call when its reply of `bytes` is not taken. Until `call` is
// removed from there.
void WatchReply(PendingReplies* replies, const void* call, size_t bytes,
                grpc::CallbackServerContext* context);

// As a time of the engine's clock (SteadyNow); InfiniteFuture if the client set none.
absl::Time DeadlineOf(const grpc::ServerContextBase& context);

// A call without an image: `fill` makes its response, or says why not, before this returns.
grpc::ServerUnaryReactor* AnswerAtOnce(const RpcContext& rpc, grpc::CallbackServerContext& context,
                                       Method method, const std::function<absl::Status()>& fill);

// One line for an image that was answered or refused: faults of ours as errors, the rest for debugging.
// `trace_id`: empty if there is none.
void LogAnswer(const Logger& logger, Method method, const std::string& request_id,
               const std::string& trace_id, const std::string& image_id,
               const absl::StatusOr<EncodeResult>& result, absl::Duration elapsed);

}  // namespace deepencoder
