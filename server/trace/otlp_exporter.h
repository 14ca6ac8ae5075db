// Sends spans to an OpenTelemetry collector by OTLP over gRPC. (Not over HTTP: gRPC is linked anyway, with
// its TLS, deadlines and reconnecting; an HTTP client would be one more library.)
//
// A thread of its own sends; whoever adds a span goes on at once. A collector that is down, slow or
// refuses costs spans, which are counted, and nothing else.
#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "opentelemetry/proto/collector/trace/v1/trace_service.grpc.pb.h"
#include "server/engine/mutex.h"
#include "server/log.h"
#include "server/trace/span.h"
#include "server/trace/span_queue.h"

namespace deepencoder {

struct OtlpOptions {
  // host:port or http://host:port (no TLS), https://host:port (the system's certificates), unix:PATH.
  std::string endpoint;
  std::vector<Span::Attribute> resource = {};       // of the process
  std::string version = {};                         // of the program
  size_t queue = 4096;                              // spans that wait; more are let go
  size_t batch = 512;                               // most spans of a message
  absl::Duration delay = absl::Seconds(1);          // the longest a span waits for company
  absl::Duration timeout = absl::Seconds(10);       // of an attempt to send
  int attempts = 4;                                 // where the collector may take it later
  absl::Duration first_backoff = absl::Seconds(1);  // doubles
  absl::Duration last_sends = absl::Seconds(2);     // for what is left at the end
};

// Of spans.
struct OtlpCounts {
  int64_t sent = 0;
  int64_t queue_full = 0;  // let go before they were sent
  int64_t failed = 0;      // not taken by the collector
};

class OtlpExporter final : public SpanSink {
 public:
  // `logger` must outlive it. Nothing is connected yet.
  // Errors: INVALID_ARGUMENT (an endpoint that is none).
  static absl::StatusOr<std::unique_ptr<OtlpExporter>> Start(OtlpOptions options,
                                                             const Logger* logger);
  // Sends what is left, for at most about `last_sends`.
  ~OtlpExporter() override;
  OtlpExporter(const OtlpExporter&) = delete;
  OtlpExporter& operator=(const OtlpExporter&) = delete;

  void Add(std::vector<Span> spans) override { queue_.Add(std::move(spans)); }
  OtlpCounts counts() const;

 private:
  OtlpExporter(OtlpOptions options, const std::shared_ptr<grpc::Channel>& channel,
               const Logger* logger);

  void Run();
  void Send(const std::vector<Span>& spans);
  // One attempt. `rejected`: of the spans of a message that was taken.
  grpc::Status Export(
      const opentelemetry::proto::collector::trace::v1::ExportTraceServiceRequest& request,
      int64_t* rejected);
  // False if the end came first.
  bool Sleep(absl::Duration time);
  void Report(const grpc::Status& status);

  const OtlpOptions options_;
  const Logger* const logger_;
  const std::unique_ptr<opentelemetry::proto::collector::trace::v1::TraceService::Stub> stub_;
  SpanQueue queue_;
  std::atomic<int64_t> sent_{0}, failed_{0};
  bool reachable_ = true;  // the thread's; each change is logged

  Mutex mutex_;
  CondVar changed_;
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;   // no second attempts
  bool give_up_ ABSL_GUARDED_BY(mutex_) = false;  // no attempts
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  grpc::ClientContext* call_ ABSL_GUARDED_BY(mutex_) = nullptr;  // under way
  std::thread thread_;
};

}  // namespace deepencoder
