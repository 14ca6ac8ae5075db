// A server as a Target, through the client library.
#pragma once

#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <optional>

#include "absl/time/clock.h"
#include "client/bench_load.h"

namespace deepencoder::client {

class ServerTarget : public Target {
 public:
  // `client` must outlive this, and have been made without retries: a failed request is to be
  // counted. `options` are those of every request, but for the mode.
  ServerTarget(Client& client, const EncodeOptions& options) : client_(client), options_(options) {}
  // Every request must have been answered: RunLoad returns only then.
  ~ServerTarget() override = default;

  absl::Time Now() override { return absl::Now(); }
  void Send(uint64_t ticket, const WorkItem& item) override;
  std::optional<Answer> Next(absl::Time until) override;

 private:
  Client& client_;
  const EncodeOptions options_;
  // What the next requests are made of: to copy an image takes time that is not the service's, so it is done
  // once a request is on its way.
  std::map<const Image*, Image> copies_;
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<Answer> answers_;  // guarded by mutex_
};

}  // namespace deepencoder::client
