#include "server/engine/limited_engine.h"

#include <utility>

namespace deepencoder {

LimitedEngine::LimitedEngine(std::shared_ptr<ClientLimits> limits, std::shared_ptr<Engine> engine,
                             EngineObserver* observer)
    : limits_(std::move(limits)), engine_(std::move(engine)), observer_(observer) {}

void LimitedEngine::Encode(EncodeJob job, EncodeDone done) {
  RejectReason reason{};
  std::string client = job.client;
  if (absl::Status status = limits_->Admit(client, StoredBytes(job), &reason); !status.ok()) {
    observer_->OnReject(reason);
    return done(std::move(status));
  }
  engine_->Encode(std::move(job), [limits = limits_, client = std::move(client),
                                   done = std::move(done)](absl::StatusOr<EncodeResult> result) {
    limits->Release(client);
    done(std::move(result));
  });
}

}  // namespace deepencoder
