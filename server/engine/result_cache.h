// Results by content, and the single flight: of equal jobs that are in the engine at once, one (the
// leader) is encoded and the others (followers) wait for what it brings.
//
// A follower shares its leader's result, or its INVALID_ARGUMENT, which it would get too. It does not
// share other failures: the leader's deadline, its client's leaving or a device's fault are not the
// follower's, so one of them becomes the leader in its place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <unordered_map>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "server/engine/content_key.h"
#include "server/engine/engine.h"
#include "server/engine/mutex.h"
#include "server/engine/request.h"

namespace deepencoder {

// Thread-safe. Least recently used entries go first.
class ResultCache {
 public:
  enum class Role : uint8_t {
    kHit,     // *result is set
    kLead,    // encode it, then Publish or Abandon
    kFollow,  // the leader's end will bring it back
  };

  // Holds at most `max_bytes` of results. 0: the caller does without a cache.
  ResultCache(size_t max_bytes, EngineObserver* observer);

  // What becomes of `request`, whose key is set.
  Role Join(const std::shared_ptr<Request>& request, EncodeResult* result);

  // The leader of `key` has a result. Keeps it if it fits; returns the followers.
  std::vector<std::shared_ptr<Request>> Publish(const ContentKey& key, const EncodeResult& result);

  // The leader of `key` failed in a way that any follower would. Returns the followers.
  std::vector<std::shared_ptr<Request>> Abandon(const ContentKey& key);

  // The leader of `key` failed for reasons of its own. Returns the follower that leads now (null if none
  // is left), and in `gone` those that nobody waits for.
  std::shared_ptr<Request> PassOn(const ContentKey& key, absl::Time now,
                                  std::vector<std::shared_ptr<Request>>* gone);

  // Forgets all results; flights go on.
  void Clear();

 private:
  struct Entry {
    ContentKey key;
    EncodeResult result;
  };
  using Flights =
      std::unordered_map<ContentKey, std::vector<std::shared_ptr<Request>>, ContentKeyHash>;

  // Bytes that an entry takes besides its rows: list and map nodes.
  static constexpr size_t kEntryOverhead = 256;
  static size_t SizeOfEntry(const EncodeResult& result) { return result.bytes + kEntryOverhead; }

  void Insert(const ContentKey& key, const EncodeResult& result)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::vector<std::shared_ptr<Request>> EndFlight(const ContentKey& key)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void TellSize() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const size_t max_bytes_;
  EngineObserver* const observer_;

  Mutex mutex_;
  std::list<Entry> recent_ ABSL_GUARDED_BY(mutex_);  // most recently used first
  std::unordered_map<ContentKey, std::list<Entry>::iterator, ContentKeyHash> entries_
      ABSL_GUARDED_BY(mutex_);
  Flights flights_ ABSL_GUARDED_BY(mutex_);
  size_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace deepencoder
