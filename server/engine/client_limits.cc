#include "server/engine/client_limits.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/engine/retry_hint.h"

namespace deepencoder {
namespace {

// For images in flight: nobody knows when the client's own will be answered.
constexpr absl::Duration kInFlightRetry = absl::Milliseconds(100);
// A bucket that is empty by rounding alone should not send a client away for no time at all.
constexpr absl::Duration kLeastRetry = absl::Milliseconds(1);

absl::Status Refuse(int64_t limit, const char* unit, absl::Duration retry) {
  return WithRetryAfter(
      absl::ResourceExhaustedError(
          absl::StrCat("this client is over its limit of ", limit, " ", unit, "; retry later")),
      std::max(retry, kLeastRetry));
}

}  // namespace

ClientLimits::ClientLimits(const ClientLimitOptions& options, const Clock* clock)
    : options_(options), clock_(clock) {}

absl::Status ClientLimits::Admit(const std::string& name, int64_t bytes, RejectReason* reason) {
  const absl::Time now = clock_->Now();
  const MutexLock lock(mutex_);
  Client& client = Find(name, now);
  Fill(client, now);
  if (options_.images_in_flight > 0 && client.in_flight >= options_.images_in_flight) {
    *reason = RejectReason::kClientImages;
    return Refuse(options_.images_in_flight, "images in flight", kInFlightRetry);
  }
  if (options_.images_per_second > 0 && client.images < 1) {
    *reason = RejectReason::kClientRate;
    const double seconds = (1 - client.images) / static_cast<double>(options_.images_per_second);
    return Refuse(options_.images_per_second, "images a second", absl::Seconds(seconds));
  }
  if (options_.bytes_per_second > 0 && client.bytes <= 0) {
    *reason = RejectReason::kClientBytes;
    const double seconds = -client.bytes / static_cast<double>(options_.bytes_per_second);
    return Refuse(options_.bytes_per_second, "bytes a second", absl::Seconds(seconds));
  }
  client.images -= 1;
  client.bytes -= static_cast<double>(bytes);
  ++client.in_flight;
  return absl::OkStatus();
}

void ClientLimits::Release(const std::string& name) {
  const MutexLock lock(mutex_);
  const auto found = by_name_.find(name);
  if (found != by_name_.end()) --found->second->in_flight;
}

size_t ClientLimits::size() {
  const MutexLock lock(mutex_);
  return clients_.size();
}

ClientLimits::Client& ClientLimits::Find(const std::string& name, absl::Time now) {
  const auto found = by_name_.find(name);
  if (found != by_name_.end()) {
    clients_.splice(clients_.begin(), clients_, found->second);
    return clients_.front();
  }
  if (clients_.size() >= options_.clients) ForgetOldest();
  clients_.push_front({.name = name,
                       .images = static_cast<double>(options_.images_per_second),
                       .bytes = static_cast<double>(options_.bytes_per_second),
                       .filled = now});
  by_name_[name] = clients_.begin();
  return clients_.front();
}

void ClientLimits::Fill(Client& client, absl::Time now) const {
  // A clock that was set back gives nothing.
  const double seconds =
      std::max(0.0, absl::ToDoubleSeconds(now - std::exchange(client.filled, now)));
  const auto fill = [seconds](double level, int64_t rate) {
    const auto full = static_cast<double>(rate);
    return std::min(full, level + seconds * full);
  };
  client.images = fill(client.images, options_.images_per_second);
  client.bytes = fill(client.bytes, options_.bytes_per_second);
}

void ClientLimits::ForgetOldest() {
  // Who has images in flight must stay, or would be let in anew; the engine bounds how many those are.
  for (auto at = clients_.rbegin(); at != clients_.rend(); ++at) {
    if (at->in_flight > 0) continue;
    by_name_.erase(at->name);
    clients_.erase(std::next(at).base());
    return;
  }
}

}  // namespace deepencoder
