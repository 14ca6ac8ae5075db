#include "server/kserve/inference_service.h"

#include <algorithm>
#include <atomic>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "server/engine/clock.h"
#include "server/kserve/describe.h"
#include "server/kserve/infer_request.h"
#include "server/kserve/infer_response.h"
#include "server/rpc/call_trace.h"
#include "server/rpc/client_identity.h"
#include "server/rpc/message_buffer.h"
#include "server/rpc/pending_replies.h"
#include "server/rpc/request_id.h"
#include "server/rpc/request_limit.h"
#include "server/rpc/server_timing.h"
#include "server/rpc/small_message.h"
#include "server/rpc/status.h"

namespace deepencoder::kserve {
namespace {

absl::StatusOr<std::shared_ptr<const inference::ModelInferRequest>> Parse(
    const grpc::ByteBuffer& buffer) {
  auto message = std::make_shared<inference::ModelInferRequest>();
  if (absl::Status status = ParseMessage(buffer, message.get()); !status.ok()) return status;
  return message;
}

// With the image's number before the text; a retry hint stays.
absl::Status OfImage(size_t index, const absl::Status& status) {
  absl::Status named(status.code(),
                     absl::StrCat("image ", index, ": ", std::string(status.message())));
  status.ForEachPayload(
      [&named](auto type, const absl::Cord& payload) { named.SetPayload(type, payload); });
  return named;
}

// Of each stage the longest time that an image of a batch spent in it.
StageSeconds Slowest(const std::vector<EncodeResult>& results) {
  StageSeconds slowest;
  for (const EncodeResult& result : results) {
    for (double StageSeconds::*stage :
         {&StageSeconds::decode, &StageSeconds::views, &StageSeconds::queue, &StageSeconds::compute,
          &StageSeconds::assemble}) {
      slowest.*stage = std::max(slowest.*stage, result.seconds.*stage);
    }
  }
  return slowest;
}

// One ModelInfer call. Deletes itself when gRPC is done with it, which is after Finish, which is
// after the engine's last answer: so the engine's callbacks never meet a dead object.
class InferCall final : public grpc::ServerUnaryReactor {
 public:
  InferCall(const RpcContext* rpc, grpc::CallbackServerContext* context, grpc::ByteBuffer* response)
      : rpc_(rpc),
        context_(context),
        response_(response),
        request_id_(TakeRequestId(*context)),
        client_(IdentityOf(*context, rpc->authenticator)),
        trace_(rpc->tracer, *context, Method::kModelInfer, request_id_) {
    rpc_->observer->OnCallStarted(Method::kModelInfer);
  }

  void Run(std::shared_ptr<const Serving> serving, const grpc::ByteBuffer& buffer) {
    absl::StatusOr<RequestLimit::Place> place = RequestLimit::Take(rpc_->requests);
    if (!place.ok()) return Refuse(place.status());
    place_ = *std::move(place);
    if (absl::Status status = CheckMessageSize(buffer, rpc_->rules.max_image_bytes); !status.ok()) {
      return Refuse(status);
    }
    const auto message = Parse(buffer);
    // What was received is parsed: gRPC need not keep it for as long as the images are encoded.
    context_->GetRpcAllocatorState()->FreeRequest();
    if (!message.ok()) return Refuse(message.status());
    model_ = serving->info.model();
    absl::Status status =
        CheckModel(serving->info, (*message)->model_name(), (*message)->model_version());
    if (!status.ok()) return Refuse(status);
    absl::StatusOr<InferRequest> request =
        ReadInferRequest(*message, RegionsOf(rpc_->regions, RegionTable::Scope::kNamed, *context_),
                         rpc_->rules.max_image_bytes);
    if (!request.ok()) return Refuse(request.status());
    request_ = *std::move(request);
    absl::StatusOr<std::vector<EncodeJob>> jobs = MakeJobs(DeadlineOf(*context_));
    if (!jobs.ok()) return Refuse(jobs.status());
    Encode(std::move(serving), *std::move(jobs));
  }

  // Ends the call before any image was given to the engine.
  void Refuse(const absl::Status& status) {
    LogAnswer(*rpc_->logger, Method::kModelInfer, request_id_, trace_.trace_id(),
              request_.options.image.id(), status, SteadyNow() - arrived_);
    Answer(status);
  }

 private:
  absl::StatusOr<std::vector<EncodeJob>> MakeJobs(absl::Time deadline) {
    deadline = std::min(deadline, arrived_ + request_.options.timeout);
    std::vector<EncodeJob> jobs;
    for (size_t i = 0; i < request_.files.size(); ++i) {
      absl::StatusOr<EncodeJob> job =
          ToJob(request_.options.image, std::move(request_.files[i]), rpc_->rules);
      if (!job.ok()) return InBatch(i, job.status());
      job->request_id = request_id_;
      job->client = client_;
      job->deadline = deadline;
      job->cancel = cancel_;
      jobs.push_back(*std::move(job));
    }
    return jobs;
  }

  // Nothing of this object is touched after the last job is handed over: its answer may end the
  // call.
  // NOLINTNEXTLINE(performance-unnecessary-value-param): the engine is held to the last job
  void Encode(std::shared_ptr<const Serving> serving, std::vector<EncodeJob> jobs) {
    const size_t count = jobs.size();
    results_.resize(count);
    unanswered_ = count;
    serving_ = serving;
    for (size_t i = 0; i < count; ++i) {
      const std::shared_ptr<Timeline> timeline = jobs[i].timeline = trace_.NewTimeline();
      serving->engine->Encode(std::move(jobs[i]),
                              [this, i, timeline](absl::StatusOr<EncodeResult> result) {
                                OnResult(i, timeline.get(), std::move(result));
                              });
    }
  }

  // Each image's place in results_ is written by its answer alone, and read after the last answer.
  void OnResult(size_t index, const Timeline* timeline, absl::StatusOr<EncodeResult> result) {
    const absl::Time answered = SteadyNow();
    const std::string& image_id = request_.options.image.id();
    LogAnswer(*rpc_->logger, Method::kModelInfer, request_id_, trace_.trace_id(), image_id, result,
              answered - arrived_);
    trace_.RecordImage(timeline, image_id, arrived_, answered, result);
    if (result.ok()) {
      results_[index] = *std::move(result);
    } else if (!failed_.exchange(true)) {
      failure_ = InBatch(index, result.status());
      cancel_->Cancel();  // the call fails: its other images need not be encoded
    }
    if (unanswered_.fetch_sub(1, std::memory_order_acq_rel) == 1) Assemble();
  }

  void Assemble() {
    if (failed_) return Answer(failure_);
    absl::StatusOr<grpc::ByteBuffer> written = WriteInferResponse(model_, request_, results_);
    const absl::Status status = written.status();
    const StageSeconds slowest = Slowest(results_);
    results_.clear();  // the answer holds what it needs
    if (written.ok()) {
      *response_ = *std::move(written);
      WatchReply(rpc_->replies, this, response_->Length(), context_);
    }
    Answer(status, &slowest);
  }

  // `stages`: null if not every image was encoded.
  void Answer(const absl::Status& status, const StageSeconds* stages = nullptr) {
    const absl::Duration elapsed = SteadyNow() - arrived_;
    rpc_->observer->OnAnswered(Method::kModelInfer, absl::ToDoubleSeconds(elapsed));
    context_->AddTrailingMetadata(kServerTimingKey, FormatServerTiming(stages, elapsed));
    code_ = static_cast<grpc::StatusCode>(status.code());
    place_.reset();  // first, so that the client's next call finds it free
    Finish(ToGrpcStatus(status));
  }

  absl::Status InBatch(size_t index, const absl::Status& status) const {
    return request_.batched ? OfImage(index, status) : status;
  }

  void OnCancel() override { cancel_->Cancel(); }
  void OnDone() override {
    if (rpc_->replies != nullptr) rpc_->replies->Remove(this);
    rpc_->observer->OnCallEnded(Method::kModelInfer, code_);
    trace_.End(code_);
    delete this;
  }

  const RpcContext* const rpc_;
  grpc::CallbackServerContext* const context_;  // until OnDone
  grpc::ByteBuffer* const response_;
  const std::string request_id_;
  const std::string client_;
  CallTrace trace_;
  const absl::Time arrived_ = SteadyNow();
  const std::shared_ptr<CancelFlag> cancel_ = std::make_shared<CancelFlag>();
  std::shared_ptr<const Serving> serving_;  // its engine outlives the jobs
  RequestLimit::Place place_;
  std::string model_;
  InferRequest request_;  // its files go to the jobs
  std::vector<EncodeResult> results_;
  std::atomic<size_t> unanswered_{0};
  std::atomic<bool> failed_{false};
  absl::Status failure_;  // of the first image that failed; read after the last answer
  grpc::StatusCode code_ = grpc::StatusCode::OK;  // written before Finish, read after it
};

// A ModelStreamInfer call, which ends as it begins.
class RefusedStream final : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  RefusedStream() {
    Finish({grpc::StatusCode::UNIMPLEMENTED,
            "ModelStreamInfer is not served: each image has one result, call ModelInfer; for many "
            "images over one call there is deepencoder.v1.VisionEncoder.EncodeImages"});
  }

 private:
  void OnDone() override { delete this; }
};

// A call that is not counted.
grpc::ServerUnaryReactor* End(grpc::CallbackServerContext* context, const absl::Status& status) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(ToGrpcStatus(status));
  return reactor;
}

grpc::ServerUnaryReactor* RefuseCuda(grpc::CallbackServerContext* context) {
  return End(context,
             absl::UnimplementedError(
                 "CUDA shared memory is not served: images are decoded, and rows sent, in the "
                 "host's memory. For that there is system shared memory"));
}

absl::Status ListRegions(RegionTable& regions, const std::string& name,
                         inference::SystemSharedMemoryStatusResponse& response) {
  for (const RegionSpec& spec : regions.ListNamed()) {
    if (!name.empty() && name != spec.name) continue;
    auto& region = (*response.mutable_regions())[spec.name];
    region.set_name(spec.name);
    region.set_key(spec.key);
    region.set_offset(spec.offset);
    region.set_byte_size(spec.size);
  }
  if (name.empty() || response.regions_size() != 0) return absl::OkStatus();
  return absl::NotFoundError("there is no shared memory region of that name");
}

}  // namespace

InferenceService::InferenceService(RpcContext rpc, Admit admit)
    : rpc_(std::move(rpc)), admit_(std::move(admit)) {}

grpc::ServerUnaryReactor* InferenceService::ServerLive(grpc::CallbackServerContext* context,
                                                       const grpc::ByteBuffer* request,
                                                       grpc::ByteBuffer* response) {
  return End(context, AnswerSmall<inference::ServerLiveRequest, inference::ServerLiveResponse>(
                          *request, response, [](const auto& /*request*/, auto& answer) {
                            answer.set_live(true);
                            return absl::OkStatus();
                          }));
}

grpc::ServerUnaryReactor* InferenceService::ServerReady(grpc::CallbackServerContext* context,
                                                        const grpc::ByteBuffer* request,
                                                        grpc::ByteBuffer* response) {
  return End(context, AnswerSmall<inference::ServerReadyRequest, inference::ServerReadyResponse>(
                          *request, response, [this](const auto& /*request*/, auto& answer) {
                            const auto serving = admit_();
                            answer.set_ready(serving.ok() && (*serving)->engine->healthy());
                            return absl::OkStatus();
                          }));
}

grpc::ServerUnaryReactor* InferenceService::ModelReady(grpc::CallbackServerContext* context,
                                                       const grpc::ByteBuffer* request,
                                                       grpc::ByteBuffer* response) {
  return End(context, AnswerSmall<inference::ModelReadyRequest, inference::ModelReadyResponse>(
                          *request, response, [this](const auto& model, auto& answer) {
                            const auto serving = admit_();
                            if (!serving.ok()) return absl::OkStatus();
                            absl::Status status =
                                CheckModel((*serving)->info, model.name(), model.version());
                            answer.set_ready(status.ok() && (*serving)->engine->healthy());
                            return status;
                          }));
}

grpc::ServerUnaryReactor* InferenceService::ServerMetadata(grpc::CallbackServerContext* context,
                                                           const grpc::ByteBuffer* request,
                                                           grpc::ByteBuffer* response) {
  return Describe(context, Method::kServerMetadata, [&](const Serving& serving) {
    return AnswerSmall<inference::ServerMetadataRequest, inference::ServerMetadataResponse>(
        *request, response, [&](const auto& /*request*/, auto& metadata) {
          metadata = DescribeServer(serving.info);
          return absl::OkStatus();
        });
  });
}

grpc::ServerUnaryReactor* InferenceService::ModelMetadata(grpc::CallbackServerContext* context,
                                                          const grpc::ByteBuffer* request,
                                                          grpc::ByteBuffer* response) {
  return Describe(context, Method::kModelMetadata, [&](const Serving& serving) {
    return AnswerSmall<inference::ModelMetadataRequest, inference::ModelMetadataResponse>(
        *request, response, [&](const auto& model, auto& metadata) {
          absl::Status status = CheckModel(serving.info, model.name(), model.version());
          if (status.ok()) metadata = DescribeModel(serving.info);
          return status;
        });
  });
}

grpc::ServerUnaryReactor* InferenceService::ModelConfig(grpc::CallbackServerContext* context,
                                                        const grpc::ByteBuffer* request,
                                                        grpc::ByteBuffer* response) {
  return Describe(context, Method::kModelConfig, [&](const Serving& serving) {
    return AnswerSmall<inference::ModelConfigRequest, inference::ModelConfigResponse>(
        *request, response, [&](const auto& model, auto& config) {
          absl::Status status = CheckModel(serving.info, model.name(), model.version());
          if (status.ok()) config = DescribeConfig(serving.info);
          return status;
        });
  });
}

grpc::ServerUnaryReactor* InferenceService::ModelInfer(grpc::CallbackServerContext* context,
                                                       const grpc::ByteBuffer* request,
                                                       grpc::ByteBuffer* response) {
  auto* call = new InferCall(&rpc_, context, response);
  auto serving = admit_();
  if (serving.ok()) {
    call->Run(*std::move(serving), *request);
  } else {
    call->Refuse(serving.status());
  }
  return call;
}

grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* InferenceService::ModelStreamInfer(
    grpc::CallbackServerContext* /*context*/) {
  return new RefusedStream();
}

grpc::ServerUnaryReactor* InferenceService::SystemSharedMemoryStatus(
    grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
    grpc::ByteBuffer* response) {
  return WithRegions(context, Method::kSystemSharedMemoryStatus, [&](RegionTable& regions) {
    return AnswerSmall<inference::SystemSharedMemoryStatusRequest,
                       inference::SystemSharedMemoryStatusResponse>(
        *request, response, [&](const auto& wanted, auto& answer) {
          return ListRegions(regions, wanted.name(), answer);
        });
  });
}

grpc::ServerUnaryReactor* InferenceService::SystemSharedMemoryRegister(
    grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
    grpc::ByteBuffer* response) {
  return WithRegions(context, Method::kSystemSharedMemoryRegister, [&](RegionTable& regions) {
    return AnswerSmall<inference::SystemSharedMemoryRegisterRequest,
                       inference::SystemSharedMemoryRegisterResponse>(
        *request, response, [&](const auto& region, auto& /*response*/) {
          return regions.Register({.name = region.name(),
                                   .key = region.key(),
                                   .offset = region.offset(),
                                   .size = region.byte_size()});
        });
  });
}

grpc::ServerUnaryReactor* InferenceService::SystemSharedMemoryUnregister(
    grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
    grpc::ByteBuffer* response) {
  return WithRegions(context, Method::kSystemSharedMemoryUnregister, [&](RegionTable& regions) {
    return AnswerSmall<inference::SystemSharedMemoryUnregisterRequest,
                       inference::SystemSharedMemoryUnregisterResponse>(
        *request, response, [&](const auto& unwanted, auto& /*response*/) {
          if (unwanted.name().empty()) {
            regions.UnregisterAllNamed();
          } else {
            regions.Unregister(RegionTable::Scope::kNamed, unwanted.name());
          }
          return absl::OkStatus();
        });
  });
}

grpc::ServerUnaryReactor* InferenceService::CudaSharedMemoryStatus(
    grpc::CallbackServerContext* context, const grpc::ByteBuffer* /*request*/,
    grpc::ByteBuffer* /*response*/) {
  return RefuseCuda(context);
}

grpc::ServerUnaryReactor* InferenceService::CudaSharedMemoryRegister(
    grpc::CallbackServerContext* context, const grpc::ByteBuffer* /*request*/,
    grpc::ByteBuffer* /*response*/) {
  return RefuseCuda(context);
}

grpc::ServerUnaryReactor* InferenceService::CudaSharedMemoryUnregister(
    grpc::CallbackServerContext* context, const grpc::ByteBuffer* /*request*/,
    grpc::ByteBuffer* /*response*/) {
  return RefuseCuda(context);
}

grpc::ServerUnaryReactor* InferenceService::WithRegions(
    grpc::CallbackServerContext* context, Method method,
    const std::function<absl::Status(RegionTable& regions)>& act) {
  return AnswerAtOnce(rpc_, *context, method, [&]() -> absl::Status {
    if (absl::Status status = CheckSharing(rpc_.regions, *context); !status.ok()) return status;
    return act(*rpc_.regions);
  });
}

grpc::ServerUnaryReactor* InferenceService::Describe(grpc::CallbackServerContext* context,
                                                     Method method, const Fill& fill) {
  return AnswerAtOnce(rpc_, *context, method, [&]() -> absl::Status {
    const auto serving = admit_();
    return serving.ok() ? fill(**serving) : serving.status();
  });
}

}  // namespace deepencoder::kserve
