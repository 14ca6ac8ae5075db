// An engine that holds each client to its limits, in front of one that holds all of them to theirs.
// Every image of every service comes this way, so none can be forgotten.
#pragma once

#include <memory>

#include "server/engine/client_limits.h"
#include "server/engine/engine.h"

namespace deepencoder {

// Thread-safe.
class LimitedEngine final : public Engine {
 public:
  // `limits` are kept across engines. `observer` must outlive this.
  LimitedEngine(std::shared_ptr<ClientLimits> limits, std::shared_ptr<Engine> engine,
                EngineObserver* observer);

  void Encode(EncodeJob job, EncodeDone done) override;
  bool healthy() const override { return engine_->healthy(); }
  bool Drain(absl::Time deadline) override { return engine_->Drain(deadline); }

 private:
  const std::shared_ptr<ClientLimits> limits_;
  const std::shared_ptr<Engine> engine_;
  EngineObserver* const observer_;
};

}  // namespace deepencoder
