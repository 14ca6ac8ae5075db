// Limits of each client: images a second, bytes a second, images in flight.
#pragma once

#include <cstdint>
#include <list>
#include <string>
#include <unordered_map>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "server/engine/clock.h"
#include "server/engine/engine.h"
#include "server/engine/mutex.h"

namespace deepencoder {

// 0: no limit.
struct ClientLimitOptions {
  int64_t images_per_second = 0;  // up to a second's worth at once
  int64_t bytes_per_second = 0;   // of images as they are sent; the last one may go over
  int64_t images_in_flight = 0;
  size_t clients = 10'000;  // remembered; those that came last stay

  bool any() const { return images_per_second > 0 || bytes_per_second > 0 || images_in_flight > 0; }
};

// Thread-safe. A client is a name that the caller made sure of.
class ClientLimits {
 public:
  // `clock` must outlive this.
  ClientLimits(const ClientLimitOptions& options, const Clock* clock);

  // On OK the caller owes one Release. Errors: RESOURCE_EXHAUSTED with a retry hint; `reason` then says
  // which limit.
  absl::Status Admit(const std::string& client, int64_t bytes, RejectReason* reason);
  void Release(const std::string& client);

  size_t size();  // clients remembered

 private:
  struct Client {
    std::string name;
    // What may still come: a bucket that fills by a second's worth each second. Bytes may be owed.
    double images = 0, bytes = 0;
    absl::Time filled;
    int64_t in_flight = 0;
  };
  using Clients = std::list<Client>;  // the one that came last is first

  Client& Find(const std::string& name, absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Fill(Client& client, absl::Time now) const;
  void ForgetOldest() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const ClientLimitOptions options_;
  const Clock* const clock_;
  Mutex mutex_;
  Clients clients_ ABSL_GUARDED_BY(mutex_);
  std::unordered_map<std::string, Clients::iterator> by_name_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace deepencoder
