// A client's registered window of a shared memory object.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/engine/engine.h"
#include "server/shared_memory/shared_object.h"

namespace deepencoder {

// What a client registers.
struct RegionSpec {
  std::string name;                                // by which requests refer to it
  std::string key;                                 // of the object
  uint64_t offset = 0;                             // of the region in the object, bytes
  uint64_t size = 0;                               // bytes
  std::optional<MemfdPlace> memfd = std::nullopt;  // not set: an object in /dev/shm
};

// What all regions that exist hold, whether they are still registered or only in use. Thread-safe.
struct RegionUsage {
  std::atomic<int64_t> regions{0};
  std::atomic<int64_t> bytes{0};
  std::atomic<int64_t> bytes_read{0}, bytes_written{0};  // since the start
};

// The object stays open, and the region counted, until the last holder lets go: requests hold the
// regions that they use, so a region may be unregistered at any time. Thread-safe.
class Region {
 public:
  Region(RegionSpec spec, SharedObject object, std::shared_ptr<RegionUsage> usage);
  ~Region();
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;

  const RegionSpec& spec() const { return spec_; }
  const SharedObject& object() const { return object_; }

  // Errors: INVALID_ARGUMENT unless [offset, offset + size) lies in the region and is not empty.
  absl::Status CheckRange(uint64_t offset, uint64_t size) const;

  // A copy of `size` bytes from `offset` of the region.
  // Errors: CheckRange's, SharedObject::Read's.
  absl::StatusOr<SharedBytes> Read(uint64_t offset, uint64_t size) const;
  // Errors: CheckRange's, SharedObject::Write's.
  absl::Status Write(uint64_t offset, std::span<const std::byte> bytes) const;

  // The range where it lies, which lives as long as the region; empty if the object is not mapped.
  // Errors: CheckRange's.
  absl::StatusOr<std::span<std::byte>> Memory(uint64_t offset, uint64_t size) const;
  // What was written there is counted by who wrote it.
  void CountWritten(uint64_t bytes) const { usage_->bytes_written += static_cast<int64_t>(bytes); }

  // From now on the table does not find it: what lies in it may still be written by a call that is stuck.
  void Retire() const { retired_ = true; }
  bool retired() const { return retired_; }

 private:
  const RegionSpec spec_;
  const SharedObject object_;
  const std::shared_ptr<RegionUsage> usage_;
  mutable std::atomic<bool> retired_{false};
};

// Where the rows of a reply go.
struct RegionWindow {
  std::shared_ptr<const Region> region;
  uint64_t offset = 0, size = 0;  // bytes of the region
};

}  // namespace deepencoder
