#include "server/rpc/vision_encoder_service.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "server/engine/clock.h"
#include "server/rpc/call_trace.h"
#include "server/rpc/client_identity.h"
#include "server/rpc/message_buffer.h"
#include "server/rpc/pending_replies.h"
#include "server/rpc/request_id.h"
#include "server/rpc/request_limit.h"
#include "server/rpc/server_timing.h"
#include "server/rpc/small_message.h"
#include "server/rpc/status.h"

namespace deepencoder {
namespace {

// One EncodeImage call. Deletes itself when gRPC is done with it, which is after Finish, which is after
// the engine's answer: so the engine's callback never meets a dead object.
class EncodeCall final : public grpc::ServerUnaryReactor {
 public:
  EncodeCall(const RpcContext* rpc, grpc::CallbackServerContext* context,
             grpc::ByteBuffer* response)
      : rpc_(rpc),
        context_(context),
        response_(response),
        request_id_(TakeRequestId(*context)),
        client_(IdentityOf(*context, rpc->authenticator)),
        trace_(rpc->tracer, *context, Method::kEncodeImage, request_id_) {
    rpc_->observer->OnCallStarted(Method::kEncodeImage);
  }

  void Run(std::shared_ptr<const Serving> serving, const grpc::ByteBuffer& message) {
    serving_ = std::move(serving);
    absl::StatusOr<RequestLimit::Place> place = RequestLimit::Take(rpc_->requests);
    if (!place.ok()) return Answer(place.status());
    place_ = *std::move(place);
    if (absl::Status status = CheckMessageSize(message, rpc_->rules.max_image_bytes);
        !status.ok()) {
      image_id_ = PeekId(message);
      return Answer(status);
    }
    absl::StatusOr<v1::EncodeImageRequest> parsed = ParseRequest(message);
    // What was received is parsed: gRPC need not keep it for as long as the image is encoded.
    context_->GetRpcAllocatorState()->FreeRequest();
    if (!parsed.ok()) return Answer(parsed.status());
    auto request = std::make_shared<const v1::EncodeImageRequest>(*std::move(parsed));
    image_id_ = request->id();
    absl::StatusOr<ImageCall> call = MakeCall(
        request, rpc_->rules, RegionsOf(rpc_->regions, RegionTable::Scope::kHandle, *context_),
        request_id_, DeadlineOf(*context_), cancel_);
    if (!call.ok()) return Answer(call.status());
    window_ = std::move(call->reply);
    call->job.client = client_;
    call->job.timeline = timeline_ = trace_.NewTimeline();
    serving_->engine->Encode(
        std::move(call->job),
        [this](const absl::StatusOr<EncodeResult>& result) { Answer(result); });
  }

  void Answer(absl::StatusOr<EncodeResult> result) {
    if (result.ok()) {
      absl::StatusOr<grpc::ByteBuffer> reply = WriteReply(image_id_, *result, window_);
      if (reply.ok()) {
        *response_ = *std::move(reply);
      } else {
        result = reply.status();
      }
    }
    const absl::Duration elapsed = SteadyNow() - arrived_;
    rpc_->observer->OnAnswered(Method::kEncodeImage, absl::ToDoubleSeconds(elapsed));
    LogAnswer(*rpc_->logger, Method::kEncodeImage, request_id_, trace_.trace_id(), image_id_,
              result, elapsed);
    trace_.OnAnswer(std::move(timeline_), image_id_, result);
    context_->AddTrailingMetadata(
        kServerTimingKey, FormatServerTiming(result.ok() ? &result->seconds : nullptr, elapsed));
    code_ = static_cast<grpc::StatusCode>(result.status().code());
    if (result.ok()) WatchReply(rpc_->replies, this, response_->Length(), context_);
    place_.reset();  // first, so that the client's next call finds it free
    Finish(ToGrpcStatus(result.status()));
  }

 private:
  void OnCancel() override { cancel_->Cancel(); }
  void OnDone() override {
    if (rpc_->replies != nullptr) rpc_->replies->Remove(this);
    rpc_->observer->OnCallEnded(Method::kEncodeImage, code_);
    trace_.End(code_);
    delete this;
  }

  const RpcContext* const rpc_;
  grpc::CallbackServerContext* const context_;  // until OnDone
  std::shared_ptr<const Serving> serving_;      // its engine outlives the job
  RequestLimit::Place place_;
  grpc::ByteBuffer* const response_;
  const std::string request_id_;
  const std::string client_;
  CallTrace trace_;
  std::shared_ptr<Timeline> timeline_;  // the job's; null: not traced
  const absl::Time arrived_ = SteadyNow();
  const std::shared_ptr<CancelFlag> cancel_ = std::make_shared<CancelFlag>();
  std::string image_id_;
  std::optional<RegionWindow> window_;
  grpc::StatusCode code_ = grpc::StatusCode::OK;  // written before Finish, read after it
};

// A stream that ends before it begins.
class RefusedStream final : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  RefusedStream(const RpcContext& rpc, grpc::CallbackServerContext* context,
                const absl::Status& status)
      : observer_(rpc.observer), code_(static_cast<grpc::StatusCode>(status.code())) {
    TakeRequestId(*context);
    observer_->OnCallStarted(Method::kEncodeImages);
    Finish(ToGrpcStatus(status));
  }

 private:
  void OnDone() override {
    observer_->OnCallEnded(Method::kEncodeImages, code_);
    delete this;
  }

  RpcObserver* const observer_;
  const grpc::StatusCode code_;
};

}  // namespace

VisionEncoderService::VisionEncoderService(RpcContext rpc) : rpc_(std::move(rpc)) {}

void VisionEncoderService::SetServing(std::shared_ptr<const Serving> serving) {
  const MutexLock lock(mutex_);
  // `serving` then holds what was there before, and frees it after the lock.
  serving_.swap(serving);
}

void VisionEncoderService::Drain() {
  std::vector<std::shared_ptr<EncodeStream>> streams;
  {
    const MutexLock lock(mutex_);
    draining_ = true;
    for (EncodeStream* stream : streams_) {
      if (auto alive = stream->weak_from_this().lock()) streams.push_back(std::move(alive));
    }
  }
  for (const std::shared_ptr<EncodeStream>& stream : streams) stream->Drain();
}

absl::StatusOr<std::shared_ptr<const Serving>> VisionEncoderService::Admit() {
  const MutexLock lock(mutex_);
  if (draining_) return absl::UnavailableError("the server is draining");
  if (serving_ == nullptr) {
    return absl::UnavailableError("the server is starting: the model is being loaded");
  }
  return serving_;
}

grpc::ServerUnaryReactor* VisionEncoderService::EncodeImage(grpc::CallbackServerContext* context,
                                                            const grpc::ByteBuffer* request,
                                                            grpc::ByteBuffer* response) {
  auto* call = new EncodeCall(&rpc_, context, response);
  const auto serving = Admit();
  if (serving.ok()) {
    call->Run(*serving, *request);
  } else {
    call->Answer(serving.status());
  }
  return call;
}

grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* VisionEncoderService::EncodeImages(
    grpc::CallbackServerContext* context) {
  const auto serving = Admit();
  if (!serving.ok()) return new RefusedStream(rpc_, context, serving.status());
  const auto stream = EncodeStream::Start(&rpc_, *serving, context, [this](EncodeStream* closed) {
    const MutexLock lock(mutex_);
    streams_.erase(closed);
  });
  bool draining;
  {
    const MutexLock lock(mutex_);
    streams_.insert(stream.get());
    draining = draining_;
  }
  if (draining) stream->Drain();
  return stream.get();
}

grpc::ServerUnaryReactor* VisionEncoderService::GetModelInfo(grpc::CallbackServerContext* context,
                                                             const grpc::ByteBuffer* request,
                                                             grpc::ByteBuffer* response) {
  return AnswerAtOnce(rpc_, *context, Method::kGetModelInfo, [&] {
    return AnswerSmall<v1::GetModelInfoRequest, v1::ModelInfo>(
        *request, response, [this](const auto& /*request*/, v1::ModelInfo& info) {
          const auto serving = Admit();
          if (serving.ok()) info = (*serving)->info;
          return serving.status();
        });
  });
}

}  // namespace deepencoder
