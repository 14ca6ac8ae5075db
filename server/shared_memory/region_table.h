// The regions that clients have registered.
//
// A region ends when it is unregistered, when the process that holds a lock (flock) on its object has
// ended, or when no request has used it for a while. So the server holds no descriptor for ever, and a
// client that is killed leaves nothing here. One that is retired is not found any more, but stays in its object's
// way until the calls that may write there have returned.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/engine/clock.h"
#include "server/engine/mutex.h"
#include "server/shared_memory/region.h"

namespace deepencoder {

struct RegionLimits {
  int64_t regions = 64;
  int64_t bytes = int64_t{1} << 30;  // of all regions
  absl::Duration idle = absl::Minutes(10);
  std::string prefix;  // of the objects' names
};

// Thread-safe.
class RegionTable {
 public:
  // How a region is found: by a name that its client chose and every client may list (KServe's
  // protocol), or by a handle that only its client was told (ours). One never finds the other.
  enum class Scope : uint8_t { kNamed, kHandle };

  RegionTable(RegionLimits limits, const Clock* clock);  // `clock` outlives the table

  const RegionLimits& limits() const { return limits_; }

  // Under its name. The object may have other regions.
  // Errors: INVALID_ARGUMENT (name, key, size), ALREADY_EXISTS (the name), RESOURCE_EXHAUSTED (too many
  // regions or bytes), SharedObject::Open's.
  absl::Status Register(RegionSpec spec);

  // The first `size` bytes of the object, or of the memfd, under a new random handle, which is returned. Its client must hold
  // a lock on the object, by which its end is seen; no other region may be in the object.
  // Errors: as Register's, with ALREADY_EXISTS (the object); FAILED_PRECONDITION (no lock); SharedObject::OpenMemfd's.
  absl::StatusOr<std::string> RegisterHandle(const std::string& key, uint64_t size,
                                             std::optional<MemfdPlace> memfd = std::nullopt);

  // Nothing happens if it is not there, and to one that is retired and in use. Requests that use it end well.
  void Unregister(Scope scope, const std::string& name);
  void UnregisterAllNamed();

  std::vector<RegionSpec> ListNamed() const;

  // For a request. Errors: NOT_FOUND.
  absl::StatusOr<std::shared_ptr<const Region>> Find(Scope scope, const std::string& name);

  // Ends regions whose client has ended, and removes their objects' names; ends regions that were not
  // used for long. Called now and then; also by the table itself before it says that it is full.
  void Sweep();

  const RegionUsage& usage() const { return *usage_; }
  int64_t ended_idle() const { return ended_idle_; }
  int64_t ended_with_client() const { return ended_with_client_; }

 private:
  struct Entry {
    std::shared_ptr<const Region> region;
    bool locked;  // when it was registered
    absl::Time last_used;
  };
  using Key = std::pair<Scope, std::string>;

  static bool IsUsed(const Entry& entry);  // by a request
  // A call that is stuck may still write there.
  static bool MustStay(const Entry& entry);
  absl::Status CheckSpec(const RegionSpec& spec) const;
  absl::Status CheckRoom(uint64_t size) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // True if a region of that scope is in the object.
  bool IsInUse(const SharedObject::Identity& object, Scope scope) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Add(Scope scope, RegionSpec spec) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void SweepLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const RegionLimits limits_;
  const Clock* const clock_;
  const std::shared_ptr<RegionUsage> usage_ = std::make_shared<RegionUsage>();
  std::atomic<int64_t> ended_idle_{0}, ended_with_client_{0};
  mutable Mutex mutex_;
  std::map<Key, Entry> entries_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace deepencoder
