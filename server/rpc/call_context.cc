#include "server/rpc/call_context.h"

#include <grpcpp/server_context.h>

#include <chrono>
#include <utility>
#include <vector>

#include "server/engine/clock.h"
#include "server/rpc/message_buffer.h"
#include "server/rpc/pending_replies.h"
#include "server/rpc/request_id.h"
#include "server/rpc/status.h"

namespace deepencoder {

absl::StatusOr<ImageCall> MakeCall(const std::shared_ptr<const v1::EncodeImageRequest>& request,
                                   const RequestRules& rules, const FindRegion& find_region,
                                   std::string request_id, absl::Time deadline,
                                   std::shared_ptr<CancelFlag> cancel) {
  absl::StatusOr<EncodeJob> job = ToJob(request, rules, find_region);
  if (!job.ok()) return job.status();
  absl::StatusOr<std::optional<RegionWindow>> window = ReplyWindowOf(*request, find_region);
  if (!window.ok()) return window.status();
  job->request_id = std::move(request_id);
  job->deadline = deadline;
  job->cancel = std::move(cancel);
  if (*window) job->reply_memory = ReplyMemoryIn(**window);
  return ImageCall{*std::move(job), *std::move(window)};
}

absl::StatusOr<grpc::ByteBuffer> WriteReply(std::string id, const EncodeResult& result,
                                            const std::optional<RegionWindow>& window) {
  v1::EncodeImageResponse response = ToResponse(std::move(id), result);
  if (!window) return SerializeResponse(response, result);
  if (result.in_reply_memory) {
    window->region->CountWritten(result.bytes);
  } else if (absl::Status status = WriteRows(result, *window, 0); !status.ok()) {
    return status;
  }
  response.set_shared_bytes(result.bytes);
  return SerializeResponse(response);
}

void WatchReply(PendingReplies* replies, const void* call, size_t bytes,
                grpc::CallbackServerContext* context) {
  if (replies == nullptr) return;
  replies->Add(call, static_cast<int64_t>(bytes), [context] { context->TryCancel(); });
}

absl::Time DeadlineOf(const grpc::ServerContextBase& context) {
  const std::chrono::system_clock::time_point deadline = context.deadline();
  return deadline == std::chrono::system_clock::time_point::max()
             ? absl::InfiniteFuture()
             : ToSteady(absl::FromChrono(deadline));
}

grpc::ServerUnaryReactor* AnswerAtOnce(const RpcContext& rpc, grpc::CallbackServerContext& context,
                                       Method method, const std::function<absl::Status()>& fill) {
  const absl::Time arrived = SteadyNow();
  rpc.observer->OnCallStarted(method);
  TakeRequestId(context);
  const absl::Status status = fill();
  grpc::ServerUnaryReactor* reactor = context.DefaultReactor();
  reactor->Finish(ToGrpcStatus(status));
  rpc.observer->OnAnswered(method, absl::ToDoubleSeconds(SteadyNow() - arrived));
  rpc.observer->OnCallEnded(method, static_cast<grpc::StatusCode>(status.code()));
  return reactor;
}

void LogAnswer(const Logger& logger, Method method, const std::string& request_id,
               const std::string& trace_id, const std::string& image_id,
               const absl::StatusOr<EncodeResult>& result, absl::Duration elapsed) {
  const absl::Status& status = result.status();
  const bool ours =
      status.code() == absl::StatusCode::kInternal || status.code() == absl::StatusCode::kUnknown;
  const LogLevel level = ours ? LogLevel::kError : LogLevel::kDebug;
  if (!logger.Enabled(level)) return;
  std::vector<LogField> fields = {{"request_id", request_id}};
  if (!trace_id.empty()) fields.emplace_back("trace_id", trace_id);
  fields.emplace_back("method", Name(method));
  fields.emplace_back("image_id", image_id);
  if (result.ok()) {
    fields.emplace_back("mode", SpecOf(result->mode).name);
    fields.emplace_back("rows", result->rows);
    fields.emplace_back("tiles", result->tiles.count());
  } else {
    fields.emplace_back("code", Name(static_cast<grpc::StatusCode>(status.code())));
    fields.emplace_back("reason", PrintableMessage(status));
  }
  fields.emplace_back("seconds", absl::ToDoubleSeconds(elapsed));
  logger.Log(level, result.ok() ? "image encoded" : "image refused", fields);
}

}  // namespace deepencoder
