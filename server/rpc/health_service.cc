#include "server/rpc/health_service.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/rpc/client_identity.h"
#include "server/rpc/small_message.h"
#include "server/rpc/status.h"

namespace deepencoder {
namespace {

using grpc::health::v1::HealthCheckRequest;
using grpc::health::v1::HealthCheckResponse;

std::set<std::string> WithWholeServer(const std::vector<std::string>& services) {
  std::set<std::string> all(services.begin(), services.end());
  all.insert("");
  return all;
}

grpc::ByteBuffer MessageOf(HealthCheckResponse::ServingStatus status) {
  HealthCheckResponse response;
  response.set_status(status);
  return SerializeResponse(response);
}

// A Watch call that ends before it begins.
class RefusedWatch final : public grpc::ServerWriteReactor<grpc::ByteBuffer> {
 public:
  explicit RefusedWatch(const absl::Status& status) { Finish(ToGrpcStatus(status)); }

 private:
  void OnDone() override { delete this; }
};

}  // namespace

// One Watch call: writes the latest status that it has not written yet, one at a time.
class HealthService::Watcher final : public grpc::ServerWriteReactor<grpc::ByteBuffer> {
 public:
  Watcher(HealthService* health, std::string client, std::string service)
      : health_(health), client_(std::move(client)), service_(std::move(service)) {}

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
      message_ = MessageOf(status);
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
        message_ = MessageOf(*std::exchange(pending_, std::nullopt));
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
    const auto at = health_->watchers_.find(this);
    self = std::move(at->second);
    health_->watchers_.erase(at);
    const auto count = health_->of_client_.find(client_);
    if (--count->second == 0) health_->of_client_.erase(count);
  }

  HealthService* const health_;
  const std::string client_, service_;
  Mutex mutex_;
  grpc::ByteBuffer message_;  // gRPC's while writing_
  std::optional<ServingStatus> last_ ABSL_GUARDED_BY(mutex_);
  std::optional<ServingStatus> pending_ ABSL_GUARDED_BY(mutex_);
  std::optional<grpc::Status> ending_ ABSL_GUARDED_BY(mutex_);
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
};

HealthService::HealthService(const std::vector<std::string>& services, const WatchLimits& limits)
    : services_(WithWholeServer(services)), limits_(limits) {}

HealthService::ServingStatus HealthService::StatusOf(const std::string& service) {
  if (!services_.contains(service)) return HealthCheckResponse::SERVICE_UNKNOWN;
  return serving_ ? HealthCheckResponse::SERVING : HealthCheckResponse::NOT_SERVING;
}

absl::Status HealthService::CheckRoom(const std::string& client) {
  if (watchers_.size() >= limits_.all) {
    return absl::ResourceExhaustedError(
        absl::StrCat("too many Watch calls at a time (limit: ", limits_.all, ")"));
  }
  const auto own = of_client_.find(client);
  if (own != of_client_.end() && own->second >= limits_.of_a_client) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "too many Watch calls of one client at a time (limit: ", limits_.of_a_client, ")"));
  }
  return absl::OkStatus();
}

void HealthService::SetServing(bool serving) {
  // Watchers are told under the lock, so that each hears the states in their order.
  const MutexLock lock(mutex_);
  serving_ = serving;
  for (const auto& [key, watcher] : watchers_) {
    watcher->Tell(StatusOf(watcher->service()));
  }
}

void HealthService::Close() {
  const MutexLock lock(mutex_);
  closed_ = true;
  for (const auto& [key, watcher] : watchers_) {
    watcher->End({grpc::StatusCode::UNAVAILABLE, "the server is stopping"});
  }
}

grpc::ServerUnaryReactor* HealthService::Check(grpc::CallbackServerContext* context,
                                               const grpc::ByteBuffer* request,
                                               grpc::ByteBuffer* response) {
  const absl::Status status = AnswerSmall<HealthCheckRequest, HealthCheckResponse>(
      *request, response, [this](const auto& asked, auto& answer) -> absl::Status {
        const MutexLock lock(mutex_);
        answer.set_status(StatusOf(asked.service()));
        if (answer.status() != HealthCheckResponse::SERVICE_UNKNOWN) return absl::OkStatus();
        return absl::NotFoundError("no such service");
      });
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(ToGrpcStatus(status));
  return reactor;
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* HealthService::Watch(
    grpc::CallbackServerContext* context, const grpc::ByteBuffer* request) {
  HealthCheckRequest asked;
  if (absl::Status status = ParseSmallMessage(*request, &asked); !status.ok()) {
    return new RefusedWatch(status);
  }
  // A token is not looked at: health is for callers without one, and who has one could leave it away.
  const std::string client = IdentityOf(*context, nullptr);
  auto watcher = std::make_shared<Watcher>(this, client, asked.service());
  const MutexLock lock(mutex_);
  if (absl::Status status = CheckRoom(client); !status.ok()) return new RefusedWatch(status);
  watchers_.emplace(watcher.get(), watcher);
  ++of_client_[client];
  watcher->Tell(StatusOf(watcher->service()));
  if (closed_) watcher->End({grpc::StatusCode::UNAVAILABLE, "the server is stopping"});
  return watcher.get();
}

}  // namespace deepencoder
