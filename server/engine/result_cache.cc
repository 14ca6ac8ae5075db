#include "server/engine/result_cache.h"

#include <utility>

namespace deepencoder {

ResultCache::ResultCache(size_t max_bytes, EngineObserver* observer)
    : max_bytes_(max_bytes), observer_(observer) {}

void ResultCache::TellSize() {
  observer_->OnCacheSize(static_cast<int64_t>(bytes_), static_cast<int64_t>(entries_.size()));
}

ResultCache::Role ResultCache::Join(const std::shared_ptr<Request>& request, EncodeResult* result) {
  const ContentKey& key = *request->key;
  MutexLock lock(mutex_);
  if (const auto entry = entries_.find(key); entry != entries_.end()) {
    recent_.splice(recent_.begin(), recent_, entry->second);
    *result = entry->second->result;
    observer_->OnCache(true);
    return Role::kHit;
  }
  const auto [flight, is_first] = flights_.try_emplace(key);
  if (is_first) {
    request->leads = true;
    observer_->OnCache(false);
    return Role::kLead;
  }
  flight->second.push_back(request);
  return Role::kFollow;
}

std::vector<std::shared_ptr<Request>> ResultCache::EndFlight(const ContentKey& key) {
  auto flight = flights_.extract(key);
  if (flight.empty()) return {};
  return std::move(flight.mapped());
}

void ResultCache::Insert(const ContentKey& key, const EncodeResult& result) {
  const size_t size = SizeOfEntry(result);
  if (size > max_bytes_ || entries_.contains(key)) return;
  while (bytes_ + size > max_bytes_) {
    bytes_ -= SizeOfEntry(recent_.back().result);
    entries_.erase(recent_.back().key);
    recent_.pop_back();
  }
  recent_.push_front({key, result});
  entries_.emplace(key, recent_.begin());
  bytes_ += size;
  TellSize();
}

std::vector<std::shared_ptr<Request>> ResultCache::Publish(const ContentKey& key,
                                                           const EncodeResult& result) {
  MutexLock lock(mutex_);
  Insert(key, result);
  std::vector<std::shared_ptr<Request>> followers = EndFlight(key);
  for (size_t i = 0; i < followers.size(); ++i) observer_->OnCache(true);
  return followers;
}

std::vector<std::shared_ptr<Request>> ResultCache::Abandon(const ContentKey& key) {
  MutexLock lock(mutex_);
  std::vector<std::shared_ptr<Request>> followers = EndFlight(key);
  for (size_t i = 0; i < followers.size(); ++i) observer_->OnCache(false);
  return followers;
}

std::shared_ptr<Request> ResultCache::PassOn(const ContentKey& key, absl::Time now,
                                             std::vector<std::shared_ptr<Request>>* gone) {
  MutexLock lock(mutex_);
  const auto flight = flights_.find(key);
  if (flight == flights_.end()) return nullptr;
  std::vector<std::shared_ptr<Request>> staying;
  for (std::shared_ptr<Request>& follower : flight->second) {
    (follower->Gone(now) ? *gone : staying).push_back(std::move(follower));
  }
  if (staying.empty()) {
    flights_.erase(flight);
    return nullptr;
  }
  std::shared_ptr<Request> leader = std::move(staying.front());
  staying.erase(staying.begin());
  flight->second = std::move(staying);
  leader->leads = true;
  observer_->OnCache(false);
  return leader;
}

void ResultCache::Clear() {
  std::list<Entry> entries;  // freed after the lock
  MutexLock lock(mutex_);
  entries.swap(recent_);
  entries_.clear();
  bytes_ = 0;
  TellSize();
}

}  // namespace deepencoder
