#include "server/rpc/call_context.h"

#include <grpcpp/server_context.h>

#include <chrono>
#include <utility>

#include "server/rpc/pending_replies.h"
#include "server/rpc/status.h"

namespace deepencoder {

absl::StatusOr<EncodeJob> MakeJob(const std::shared_ptr<const v1::EncodeImageRequest>& request,
                                  const RequestRules& rules, std::string request_id,
                                  absl::Time deadline, std::shared_ptr<CancelFlag> cancel) {
  absl::StatusOr<EncodeJob> job = ToJob(request, rules);
  if (!job.ok()) return job;
  job->request_id = std::move(request_id);
  job->deadline = deadline;
  job->cancel = std::move(cancel);
  return job;
}

void WatchReply(PendingReplies* replies, const void* call, size_t bytes,
                grpc::CallbackServerContext* context) {
  if (replies == nullptr) return;
  replies->Add(call, static_cast<int64_t>(bytes), [context] { context->TryCancel(); });
}

absl::Time DeadlineOf(const grpc::ServerContextBase& context) {
  const std::chrono::system_clock::time_point deadline = context.deadline();
  return deadline == std::chrono::system_clock::time_point::max() ? absl::InfiniteFuture()
                                                                  : absl::FromChrono(deadline);
}

void LogAnswer(const Logger& logger, Method method, const std::string& request_id,
               const std::string& image_id, const absl::StatusOr<EncodeResult>& result,
               absl::Duration elapsed) {
  if (result.ok()) {
    if (!logger.Enabled(LogLevel::kDebug)) return;
    logger.Debug("image encoded", {{"request_id", request_id},
                                   {"method", Name(method)},
                                   {"image_id", image_id},
                                   {"mode", SpecOf(result->mode).name},
                                   {"rows", result->rows},
                                   {"tiles", result->tiles.count()},
                                   {"seconds", absl::ToDoubleSeconds(elapsed)}});
    return;
  }
  const absl::Status& status = result.status();
  const bool ours =
      status.code() == absl::StatusCode::kInternal || status.code() == absl::StatusCode::kUnknown;
  logger.Log(ours ? LogLevel::kError : LogLevel::kDebug, "image refused",
             {{"request_id", request_id},
              {"method", Name(method)},
              {"image_id", image_id},
              {"code", Name(static_cast<grpc::StatusCode>(status.code()))},
              {"reason", PrintableMessage(status)},
              {"seconds", absl::ToDoubleSeconds(elapsed)}});
}

}  // namespace deepencoder
