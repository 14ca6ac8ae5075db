#include "server/trace/otlp_exporter.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "server/engine/thread_name.h"
#include "server/rpc/hold_grpc.h"
#include "server/trace/otlp_request.h"

namespace deepencoder {
namespace {

namespace collector = opentelemetry::proto::collector::trace::v1;

constexpr std::string_view kPlain = "http://", kSecure = "https://";
constexpr char kDefaultPort[] = ":4317";  // of OTLP over gRPC

struct Endpoint {
  std::string target;
  bool tls = false;
};

absl::StatusOr<Endpoint> ParseEndpoint(std::string_view text) {
  Endpoint endpoint;
  endpoint.tls = text.starts_with(kSecure);
  if (!endpoint.tls && text.starts_with("unix:")) {
    endpoint.target = text;
    return endpoint;
  }
  if (endpoint.tls || text.starts_with(kPlain)) {
    text.remove_prefix(endpoint.tls ? kSecure.size() : kPlain.size());
    if (text.ends_with('/')) text.remove_suffix(1);
  }
  if (text.empty() || text.find('/') != std::string_view::npos) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", std::string(text),
                     "' is no collector's address: expected HOST:PORT, http://HOST:PORT, "
                     "https://HOST:PORT or unix:PATH"));
  }
  endpoint.target = text;
  // The brackets of an IPv6 address hold colons.
  if (text.find(':', text.rfind(']') == std::string_view::npos ? 0 : text.rfind(']')) ==
      std::string_view::npos) {
    endpoint.target += kDefaultPort;
  }
  return endpoint;
}

// As OTLP's specification has it, but for RESOURCE_EXHAUSTED, which says no time to come back here.
bool MayWorkLater(grpc::StatusCode code) {
  switch (code) {
    case grpc::StatusCode::CANCELLED:
    case grpc::StatusCode::DEADLINE_EXCEEDED:
    case grpc::StatusCode::ABORTED:
    case grpc::StatusCode::OUT_OF_RANGE:
    case grpc::StatusCode::UNAVAILABLE:
    case grpc::StatusCode::DATA_LOSS:
      return true;
    default:
      return false;
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<OtlpExporter>> OtlpExporter::Start(OtlpOptions options,
                                                                  const Logger* logger) {
  const absl::StatusOr<Endpoint> endpoint = ParseEndpoint(options.endpoint);
  if (!endpoint.ok()) return endpoint.status();
  HoldGrpc();
  const auto channel =
      grpc::CreateChannel(endpoint->target, endpoint->tls ? grpc::SslCredentials({})
                                                          : grpc::InsecureChannelCredentials());
  return std::unique_ptr<OtlpExporter>(new OtlpExporter(std::move(options), channel, logger));
}

OtlpExporter::OtlpExporter(OtlpOptions options, const std::shared_ptr<grpc::Channel>& channel,
                           const Logger* logger)
    : options_(std::move(options)),
      logger_(logger),
      stub_(collector::TraceService::NewStub(channel)),
      queue_(options_.queue),
      thread_([this] { Run(); }) {}

OtlpExporter::~OtlpExporter() {
  queue_.Close();
  const absl::Time deadline = absl::Now() + options_.last_sends;
  {
    const MutexLock lock(mutex_);
    ending_ = true;
    changed_.NotifyAll();
    while (!ended_ && absl::Now() < deadline) changed_.WaitFor(mutex_, deadline - absl::Now());
    give_up_ = true;
    if (call_ != nullptr) call_->TryCancel();
  }
  thread_.join();
}

OtlpCounts OtlpExporter::counts() const {
  return {.sent = sent_.load(std::memory_order_relaxed),
          .queue_full = queue_.dropped(),
          .failed = failed_.load(std::memory_order_relaxed)};
}

void OtlpExporter::Run() {
  NameThisThread("otlp-exporter");
  for (;;) {
    const std::vector<Span> spans =
        queue_.Take(std::min(options_.batch, options_.queue), options_.delay);
    if (spans.empty()) break;
    Send(spans);
  }
  const MutexLock lock(mutex_);
  ended_ = true;
  changed_.NotifyAll();
}

void OtlpExporter::Send(const std::vector<Span>& spans) {
  const auto count = static_cast<int64_t>(spans.size());
  const auto request = ToOtlp(options_.resource, options_.version, spans);
  absl::Duration backoff = options_.first_backoff;
  for (int attempt = 1;; ++attempt) {
    int64_t rejected = 0;
    const grpc::Status status = Export(request, &rejected);
    Report(status);
    if (status.ok()) {
      rejected = std::clamp<int64_t>(rejected, 0, count);
      failed_.fetch_add(rejected, std::memory_order_relaxed);
      sent_.fetch_add(count - rejected, std::memory_order_relaxed);
      return;
    }
    if (attempt >= options_.attempts || !MayWorkLater(status.error_code()) || !Sleep(backoff)) {
      failed_.fetch_add(count, std::memory_order_relaxed);
      return;
    }
    backoff *= 2;
  }
}

grpc::Status OtlpExporter::Export(const collector::ExportTraceServiceRequest& request,
                                  int64_t* rejected) {
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + options_.timeout));
  {
    const MutexLock lock(mutex_);
    if (give_up_) return {grpc::StatusCode::CANCELLED, "the server ends"};
    call_ = &context;
  }
  collector::ExportTraceServiceResponse response;
  const grpc::Status status = stub_->Export(&context, request, &response);
  *rejected = response.partial_success().rejected_spans();
  const MutexLock lock(mutex_);
  call_ = nullptr;
  return status;
}

bool OtlpExporter::Sleep(absl::Duration time) {
  const absl::Time end = absl::Now() + time;
  const MutexLock lock(mutex_);
  while (!ending_ && absl::Now() < end) changed_.WaitFor(mutex_, end - absl::Now());
  return !ending_;
}

void OtlpExporter::Report(const grpc::Status& status) {
  if (status.ok() == reachable_) return;
  reachable_ = status.ok();
  if (reachable_) {
    logger_->Info("traces are delivered again", {{"endpoint", options_.endpoint}});
  } else {
    logger_->Warning("traces cannot be delivered and will be lost",
                     {{"endpoint", options_.endpoint},
                      {"code", static_cast<int>(status.error_code())},
                      {"reason", status.error_message()}});
  }
}

}  // namespace deepencoder
