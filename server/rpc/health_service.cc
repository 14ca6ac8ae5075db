#include "server/rpc/health_service.h"

#include <optional>
#include <utility>

namespace deepencoder {
namespace {

using grpc::health::v1::HealthCheckRequest;
using grpc::health::v1::HealthCheckResponse;

std::set<std::string> WithWholeServer(const std::vector<std::string>& services) {
  std::set<std::string> all(services.begin(), services.end());
  all.insert("");
  return all;
}

}  // namespace

// One Watch call: writes the latest status that it has not written yet, one at a time.
class HealthService::Watcher final : public grpc::ServerWriteReactor<HealthCheckResponse> {
 public:
  Watcher(HealthService* health, std::string service)
      : health_(health), service_(std::move(service)) {}

  const std::string& service() const { return service_; }

  void Tell(ServingStatus status) {
    {
      const MutexLock lock(mutex_);
      if (finished_ || status == last_) return;
      last_ = status;
      if (writing_) {
        pending_ = status;
        return;
      }
      writing_ = true;
      message_.set_status(status);
    }
    StartWrite(&message_);
  }

  void End(const grpc::Status& status) {
    {
      const MutexLock lock(mutex_);
      if (finished_) return;
      finished_ = true;
      if (writing_) {
        ending_ = status;  // after the write
        return;
      }
    }
    Finish(status);
  }

 private:
  void OnWriteDone(bool ok) override {
    std::optional<grpc::Status> ending;
    {
      const MutexLock lock(mutex_);
      writing_ = false;
      ending = std::exchange(ending_, std::nullopt);
      if (!ending && !ok && !finished_) {
        finished_ = true;
        ending = grpc::Status(grpc::StatusCode::CANCELLED, "the client is gone");
      }
      if (!ending) {
        if (finished_ || !pending_) return;
        writing_ = true;
        message_.set_status(*std::exchange(pending_, std::nullopt));
      }
    }
    if (ending) {
      Finish(*ending);
    } else {
      StartWrite(&message_);
    }
  }

  void OnCancel() override { End({grpc::StatusCode::CANCELLED, "the client is gone"}); }

  void OnDone() override {
    std::shared_ptr<Watcher> self;  // freed when this function is left
    const MutexLock lock(health_->mutex_);
    for (auto at = health_->watchers_.begin(); at != health_->watchers_.end(); ++at) {
      if (at->get() != this) continue;
      self = *at;
      health_->watchers_.erase(at);
      return;
    }
  }

  HealthService* const health_;
  const std::string service_;
  Mutex mutex_;
  HealthCheckResponse message_;  // gRPC's while writing_
  std::optional<ServingStatus> last_ ABSL_GUARDED_BY(mutex_);
  std::optional<ServingStatus> pending_ ABSL_GUARDED_BY(mutex_);
  std::optional<grpc::Status> ending_ ABSL_GUARDED_BY(mutex_);
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
};

HealthService::HealthService(const std::vector<std::string>& services)
    : services_(WithWholeServer(services)) {}

HealthService::ServingStatus HealthService::StatusOf(const std::string& service) {
  if (!services_.contains(service)) return HealthCheckResponse::SERVICE_UNKNOWN;
  return serving_ ? HealthCheckResponse::SERVING : HealthCheckResponse::NOT_SERVING;
}

void HealthService::SetServing(bool serving) {
  // Watchers are told under the lock, so that each hears the states in their order.
  const MutexLock lock(mutex_);
  serving_ = serving;
  for (const std::shared_ptr<Watcher>& watcher : watchers_) {
    watcher->Tell(StatusOf(watcher->service()));
  }
}

void HealthService::Close() {
  const MutexLock lock(mutex_);
  closed_ = true;
  for (const std::shared_ptr<Watcher>& watcher : watchers_) {
    watcher->End({grpc::StatusCode::UNAVAILABLE, "the server is stopping"});
  }
}

grpc::ServerUnaryReactor* HealthService::Check(grpc::CallbackServerContext* context,
                                               const HealthCheckRequest* request,
                                               HealthCheckResponse* response) {
  ServingStatus status;
  {
    const MutexLock lock(mutex_);
    status = StatusOf(request->service());
  }
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  if (status == HealthCheckResponse::SERVICE_UNKNOWN) {
    reactor->Finish({grpc::StatusCode::NOT_FOUND, "no such service"});
  } else {
    response->set_status(status);
    reactor->Finish(grpc::Status::OK);
  }
  return reactor;
}

grpc::ServerWriteReactor<HealthCheckResponse>* HealthService::Watch(
    grpc::CallbackServerContext* /*context*/, const HealthCheckRequest* request) {
  auto watcher = std::make_shared<Watcher>(this, request->service());
  const MutexLock lock(mutex_);
  watchers_.insert(watcher);
  watcher->Tell(StatusOf(watcher->service()));
  if (closed_) watcher->End({grpc::StatusCode::UNAVAILABLE, "the server is stopping"});
  return watcher.get();
}

}  // namespace deepencoder
