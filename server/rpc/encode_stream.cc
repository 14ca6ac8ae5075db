#include "server/rpc/encode_stream.h"

#include <utility>

#include "server/engine/clock.h"
#include "server/rpc/client_identity.h"
#include "server/rpc/message_buffer.h"
#include "server/rpc/pending_replies.h"
#include "server/rpc/request_id.h"
#include "server/rpc/status.h"

namespace deepencoder {

std::shared_ptr<EncodeStream> EncodeStream::Start(const RpcContext* rpc,
                                                  std::shared_ptr<const Serving> serving,
                                                  grpc::CallbackServerContext* context,
                                                  Closed closed) {
  std::shared_ptr<EncodeStream> stream(
      new EncodeStream(rpc, std::move(serving), context, std::move(closed)));
  stream->self_ = stream;
  Steps steps;
  {
    const MutexLock lock(stream->mutex_);
    steps = stream->NextSteps();
  }
  stream->Do(steps);
  return stream;
}

EncodeStream::EncodeStream(const RpcContext* rpc, std::shared_ptr<const Serving> serving,
                           grpc::CallbackServerContext* context, Closed closed)
    : rpc_(rpc),
      serving_(std::move(serving)),
      closed_(std::move(closed)),
      context_(context),
      request_id_(TakeRequestId(*context)),
      client_(IdentityOf(*context, rpc->authenticator)),
      trace_(rpc->tracer, *context, Method::kEncodeImages, request_id_),
      deadline_(DeadlineOf(*context)),
      find_region_(RegionsOf(rpc->regions, RegionTable::Scope::kHandle, *context)) {
  rpc_->observer->OnCallStarted(Method::kEncodeImages);
}

void EncodeStream::Drain() {
  Steps steps;
  {
    const MutexLock lock(mutex_);
    draining_ = true;
    steps = NextSteps();
  }
  Do(steps);
}

EncodeStream::Steps EncodeStream::NextSteps() {
  Steps steps;
  if (finished_) return steps;
  if (broken_) {
    held_ -= static_cast<int>(replies_.size());
    replies_.clear();
  }
  if (!writing_ && !replies_.empty()) {
    outgoing_.Swap(&replies_.front());
    replies_.pop_front();
    writing_ = true;
    steps.write = true;
  }
  const bool ending = no_more_reads_ || draining_ || broken_;
  if (!ending && !reading_ && held_ < rpc_->stream_window) {
    reading_ = true;
    steps.read = true;
  }
  if (ending && held_ == 0) {
    finished_ = true;
    steps.finish = true;
    if (broken_) {
      steps.status = SteadyNow() >= deadline_
                         ? grpc::Status(grpc::StatusCode::DEADLINE_EXCEEDED, "deadline passed")
                         : grpc::Status(grpc::StatusCode::CANCELLED, "the client is gone");
    } else if (!no_more_reads_) {
      steps.status = {grpc::StatusCode::UNAVAILABLE, "the server is draining"};
    }
    code_ = steps.status.error_code();
  }
  return steps;
}

void EncodeStream::Do(const Steps& steps) {
  if (steps.write) StartWrite(&outgoing_);
  if (steps.read) StartRead(&incoming_);
  if (steps.finish) Finish(steps.status);
}

void EncodeStream::OnReadDone(bool ok) {
  bool handle = ok;
  {
    const MutexLock lock(mutex_);
    if (!ok) no_more_reads_ = true;
    if (finished_) handle = false;
    if (handle) ++held_;
  }
  if (handle) HandleRequest(incoming_);
  incoming_.Clear();
  Steps steps;
  {
    const MutexLock lock(mutex_);
    reading_ = false;  // not before: the next read fills incoming_
    steps = NextSteps();
  }
  Do(steps);
}

void EncodeStream::HandleRequest(const grpc::ByteBuffer& message) {
  const absl::Time arrived = SteadyNow();
  if (absl::Status status = BeginImage(); !status.ok()) {
    return Reply(PeekId(message), arrived, nullptr, status);
  }
  if (absl::Status status = CheckMessageSize(message, rpc_->rules.max_image_bytes); !status.ok()) {
    return Answer(PeekId(message), arrived, nullptr, status);
  }
  absl::StatusOr<v1::EncodeImageRequest> parsed = ParseRequest(message);
  if (!parsed.ok()) return Answer("", arrived, nullptr, parsed.status());
  auto request = std::make_shared<const v1::EncodeImageRequest>(*std::move(parsed));
  std::string image_id = request->id();
  absl::StatusOr<ImageCall> call =
      MakeCall(request, rpc_->rules, find_region_, request_id_, deadline_, cancel_);
  if (!call.ok()) return Answer(image_id, arrived, nullptr, call.status());
  call->job.client = client_;
  const std::shared_ptr<Timeline> timeline = call->job.timeline = trace_.NewTimeline();
  serving_->engine->Encode(
      std::move(call->job),
      [self = shared_from_this(), image_id = std::move(image_id), arrived, timeline,
       window = std::move(call->reply)](absl::StatusOr<EncodeResult> result) {
        self->Answer(image_id, arrived, timeline.get(), std::move(result), window);
      });
}

absl::Status EncodeStream::BeginImage() {
  const MutexLock lock(mutex_);
  if (at_work_ == 0) {
    absl::StatusOr<RequestLimit::Place> place = RequestLimit::Take(rpc_->requests);
    if (!place.ok()) return place.status();
    place_ = *std::move(place);
  }
  ++at_work_;
  return absl::OkStatus();
}

void EncodeStream::EndImage() {
  const MutexLock lock(mutex_);
  if (--at_work_ == 0) place_.reset();
}

void EncodeStream::Answer(const std::string& image_id, absl::Time arrived, const Timeline* timeline,
                          absl::StatusOr<EncodeResult> result,
                          const std::optional<RegionWindow>& window) {
  EndImage();  // first, so that the client's next call finds the place free
  Reply(image_id, arrived, timeline, std::move(result), window);
}

void EncodeStream::Reply(const std::string& image_id, absl::Time arrived, const Timeline* timeline,
                         absl::StatusOr<EncodeResult> result,
                         const std::optional<RegionWindow>& window) {
  grpc::ByteBuffer reply;
  if (result.ok()) {
    absl::StatusOr<grpc::ByteBuffer> written = WriteReply(image_id, *result, window);
    if (written.ok()) {
      reply = *std::move(written);
    } else {
      result = written.status();
    }
  }
  if (!result.ok()) reply = SerializeResponse(ToErrorResponse(image_id, result.status()));
  const absl::Time answered = SteadyNow();
  const absl::Duration elapsed = answered - arrived;
  rpc_->observer->OnAnswered(Method::kEncodeImages, absl::ToDoubleSeconds(elapsed));
  rpc_->observer->OnStreamImage(static_cast<grpc::StatusCode>(result.status().code()));
  LogAnswer(*rpc_->logger, Method::kEncodeImages, request_id_, trace_.trace_id(), image_id, result,
            elapsed);
  // Before the reply is queued: the call may end with it.
  trace_.RecordImage(timeline, image_id, arrived, answered, result);
  // Before it can be taken.
  WatchReply(rpc_->replies, this, reply.Length(), context_);
  Steps steps;
  {
    const MutexLock lock(mutex_);
    replies_.push_back(std::move(reply));
    steps = NextSteps();
  }
  Do(steps);
}

void EncodeStream::OnWriteDone(bool ok) {
  if (!ok) cancel_->Cancel();
  if (rpc_->replies != nullptr) {
    rpc_->replies->Taken(this, static_cast<int64_t>(outgoing_.Length()));
  }
  outgoing_.Clear();
  Steps steps;
  {
    const MutexLock lock(mutex_);
    writing_ = false;
    --held_;
    if (!ok) broken_ = true;
    steps = NextSteps();
  }
  Do(steps);
}

void EncodeStream::OnCancel() {
  cancel_->Cancel();
  Steps steps;
  {
    const MutexLock lock(mutex_);
    broken_ = true;
    steps = NextSteps();
  }
  Do(steps);
}

void EncodeStream::OnDone() {
  const std::shared_ptr<EncodeStream> self = std::move(self_);
  grpc::StatusCode code;
  {
    const MutexLock lock(mutex_);
    code = code_;
  }
  if (rpc_->replies != nullptr) rpc_->replies->Remove(this);
  rpc_->observer->OnCallEnded(Method::kEncodeImages, code);
  trace_.End(code);
  closed_(this);
}

}  // namespace deepencoder
