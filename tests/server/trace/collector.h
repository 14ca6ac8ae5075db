// An OpenTelemetry collector for tests: speaks OTLP over gRPC, keeps what it is sent, and answers as told.
#pragma once

#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "opentelemetry/proto/collector/trace/v1/trace_service.grpc.pb.h"
#include "server/engine/mutex.h"

namespace deepencoder {

class Collector final : public opentelemetry::proto::collector::trace::v1::TraceService::Service {
 public:
  using Request = opentelemetry::proto::collector::trace::v1::ExportTraceServiceRequest;
  using Response = opentelemetry::proto::collector::trace::v1::ExportTraceServiceResponse;
  using OtlpSpan = opentelemetry::proto::trace::v1::Span;
  // Called for each message, in a thread of gRPC.
  using Answer = std::function<grpc::Status(grpc::ServerContext*, Response*)>;

  // `port` 0: a free one.
  explicit Collector(Answer answer = nullptr, int port = 0) : answer_(std::move(answer)) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort(absl::StrCat("127.0.0.1:", port), grpc::InsecureServerCredentials(),
                             &port_);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
  }
  ~Collector() override { server_->Shutdown(std::chrono::system_clock::now()); }

  std::string address() const { return absl::StrCat("127.0.0.1:", port_); }

  grpc::Status Export(grpc::ServerContext* context, const Request* request,
                      Response* response) override {
    {
      const MutexLock lock(mutex_);
      ++calls_;
      changed_.NotifyAll();
    }
    const grpc::Status status = answer_ ? answer_(context, response) : grpc::Status::OK;
    const MutexLock lock(mutex_);
    if (status.ok()) taken_.push_back(*request);
    changed_.NotifyAll();
    return status;
  }

  // Waits for so many messages, answered or not.
  void AwaitCalls(int count) {
    const MutexLock lock(mutex_);
    while (calls_ < count) changed_.Wait(mutex_);
  }
  // Waits until spans of this many have been taken, and gives all of them.
  std::vector<OtlpSpan> AwaitSpans(size_t count) {
    const MutexLock lock(mutex_);
    while (Spans().size() < count) changed_.Wait(mutex_);
    return Spans();
  }
  std::vector<Request> taken() {
    const MutexLock lock(mutex_);
    return taken_;
  }

 private:
  std::vector<OtlpSpan> Spans() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    std::vector<OtlpSpan> spans;
    for (const Request& request : taken_) {
      for (const auto& sender : request.resource_spans()) {
        for (const auto& scope : sender.scope_spans()) {
          spans.insert(spans.end(), scope.spans().begin(), scope.spans().end());
        }
      }
    }
    return spans;
  }

  const Answer answer_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
  Mutex mutex_;
  CondVar changed_;
  int calls_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<Request> taken_ ABSL_GUARDED_BY(mutex_);
};

// An attribute's value as text; "" if there is none.
inline std::string AttributeOf(const auto& attributes, const std::string& key) {
  for (const auto& attribute : attributes) {
    if (attribute.key() != key) continue;
    const auto& value = attribute.value();
    if (value.has_string_value()) return value.string_value();
    if (value.has_int_value()) return absl::StrCat(value.int_value());
    if (value.has_double_value()) return absl::StrCat(value.double_value());
    return value.bool_value() ? "true" : "false";
  }
  return "";
}

}  // namespace deepencoder
