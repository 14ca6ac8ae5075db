#include "server/shared_memory/region_table.h"

#include <openssl/rand.h>

#include <algorithm>
#include <csignal>
#include <cstddef>
#include <limits>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "server/shared_memory/object_name.h"

namespace deepencoder {
namespace {

constexpr size_t kMaxRegionName = 256;  // bytes
constexpr size_t kHandleBytes = 16;     // random: nobody guesses 128 bits

absl::StatusOr<std::string> RandomHandle() {
  unsigned char bytes[kHandleBytes];
  if (RAND_bytes(bytes, sizeof(bytes)) != 1) return absl::InternalError("no random numbers");
  return absl::BytesToHexString(std::string(reinterpret_cast<char*>(bytes), sizeof(bytes)));
}

std::string Printable(const std::string& text) {
  return absl::CHexEscape(text.substr(0, kMaxRegionName));
}

}  // namespace

RegionTable::RegionTable(RegionLimits limits, const Clock* clock)
    : limits_(std::move(limits)), clock_(clock) {
  // Where the process has a limit of file sizes (RLIMIT_FSIZE), a write behind it raises a signal that
  // ends the process, and a client chooses how far behind its object's start its region lies. Ignored,
  // it is an error of that write.
  std::signal(SIGXFSZ, SIG_IGN);
}

absl::Status RegionTable::Register(RegionSpec spec) {
  const MutexLock lock(mutex_);
  return Add(Scope::kNamed, std::move(spec));
}

absl::StatusOr<std::string> RegionTable::RegisterHandle(const std::string& key, uint64_t size,
                                                        std::optional<MemfdPlace> memfd) {
  absl::StatusOr<std::string> handle = RandomHandle();
  if (!handle.ok()) return handle;
  const MutexLock lock(mutex_);
  absl::Status status =
      Add(Scope::kHandle, {.name = *handle, .key = key, .offset = 0, .size = size, .memfd = memfd});
  if (!status.ok()) return status;
  return handle;
}

absl::Status RegionTable::CheckSpec(const RegionSpec& spec) const {
  if (spec.name.empty() || spec.name.size() > kMaxRegionName) {
    return absl::InvalidArgumentError(absl::StrCat("the region's name has ", spec.name.size(),
                                                   " bytes: expected 1 to ", kMaxRegionName));
  }
  // So that no sum of an offset and a size in the region can exceed what off_t holds.
  constexpr uint64_t kMost = std::numeric_limits<int64_t>::max();
  if (spec.size == 0 || spec.size > kMost || spec.offset > kMost - spec.size) {
    return absl::InvalidArgumentError(absl::StrCat("region ", Printable(spec.name), " of ",
                                                   spec.size, " bytes from ", spec.offset,
                                                   ": expected 1 byte or more, and the end below "
                                                   "2^63"));
  }
  return absl::OkStatus();
}

absl::Status RegionTable::CheckRoom(uint64_t size) {
  const auto full = [this, size]() -> absl::Status {
    if (usage_->regions >= limits_.regions) {
      return absl::ResourceExhaustedError(absl::StrCat(
          "there are ", usage_->regions.load(), " shared memory regions; the limit is ",
          limits_.regions, " (the server's --shared-memory-regions)"));
    }
    const auto left = static_cast<uint64_t>(limits_.bytes - usage_->bytes);
    if (size > left) {
      return absl::ResourceExhaustedError(absl::StrCat("the region has ", size, " bytes; ", left,
                                                       " are left of ", limits_.bytes,
                                                       " (the server's --shared-memory-bytes)"));
    }
    return absl::OkStatus();
  };
  if (full().ok()) return absl::OkStatus();
  SweepLocked();
  return full();
}

bool RegionTable::IsInUse(const SharedObject::Identity& object, Scope scope) const {
  return std::any_of(entries_.begin(), entries_.end(), [&](const auto& entry) {
    return entry.first.first == scope && entry.second.region->object().identity() == object;
  });
}

absl::Status RegionTable::Add(Scope scope, RegionSpec spec) {
  if (absl::Status status = CheckSpec(spec); !status.ok()) return status;
  absl::StatusOr<std::string> file = ParseObjectName(spec.key, limits_.prefix);
  if (!file.ok()) return file.status();
  if (entries_.contains({scope, spec.name})) {
    return absl::AlreadyExistsError(
        absl::StrCat("there is a shared memory region ", Printable(spec.name), " already"));
  }
  if (absl::Status status = CheckRoom(spec.size); !status.ok()) return status;
  absl::StatusOr<SharedObject> object =
      spec.memfd ? SharedObject::OpenMemfd(*file, *spec.memfd, spec.offset + spec.size)
                 : SharedObject::Open(*file);
  if (!object.ok()) return object.status();
  const absl::StatusOr<uint64_t> size = object->Size();
  if (!size.ok()) return size.status();
  if (*size < spec.offset + spec.size) {
    return absl::InvalidArgumentError(absl::StrCat("shared memory object ", *file, " has ", *size,
                                                   " bytes; the region's end is at ",
                                                   spec.offset + spec.size));
  }
  const bool locked = object->IsLockedByOther();
  if (scope == Scope::kHandle && !locked) {
    return absl::FailedPreconditionError(absl::StrCat(
        "shared memory object ", *file,
        ": its client must hold a lock (flock, LOCK_SH) on it for as long as it uses it"));
  }
  // What one client holds by a handle is nobody else's, though others may have seen the object's name.
  if (IsInUse(object->identity(), Scope::kHandle) ||
      (scope == Scope::kHandle && IsInUse(object->identity(), Scope::kNamed))) {
    return absl::AlreadyExistsError(
        absl::StrCat("shared memory object ", *file, " is registered already"));
  }
  const Key key(scope, spec.name);
  auto region = std::make_shared<const Region>(std::move(spec), *std::move(object), usage_);
  entries_.emplace(key, Entry{std::move(region), locked, clock_->Now()});
  return absl::OkStatus();
}

bool RegionTable::IsUsed(const Entry& entry) { return entry.region.use_count() > 1; }

bool RegionTable::MustStay(const Entry& entry) { return entry.region->retired() && IsUsed(entry); }

void RegionTable::Unregister(Scope scope, const std::string& name) {
  const MutexLock lock(mutex_);
  const auto at = entries_.find({scope, name});
  // The sweep ends what must stay.
  if (at != entries_.end() && !MustStay(at->second)) entries_.erase(at);
}

void RegionTable::UnregisterAllNamed() {
  const MutexLock lock(mutex_);
  std::erase_if(entries_, [](const auto& entry) { return entry.first.first == Scope::kNamed; });
}

std::vector<RegionSpec> RegionTable::ListNamed() const {
  const MutexLock lock(mutex_);
  std::vector<RegionSpec> specs;
  for (const auto& [key, entry] : entries_) {
    if (key.first == Scope::kNamed) specs.push_back(entry.region->spec());
  }
  return specs;
}

absl::StatusOr<std::shared_ptr<const Region>> RegionTable::Find(Scope scope,
                                                                const std::string& name) {
  const MutexLock lock(mutex_);
  const auto at = entries_.find({scope, name});
  if (at == entries_.end() || at->second.region->retired()) {
    return absl::NotFoundError(absl::StrCat(
        "there is no shared memory region ", Printable(name),
        ": it was not registered, or has ended (unregistered, not used for ",
        absl::FormatDuration(limits_.idle), ", or a device is stuck that may write there)"));
  }
  at->second.last_used = clock_->Now();
  return at->second.region;
}

void RegionTable::Sweep() {
  const MutexLock lock(mutex_);
  SweepLocked();
}

void RegionTable::SweepLocked() {
  const absl::Time now = clock_->Now();
  std::erase_if(entries_, [&](const auto& at) {
    const Entry& entry = at.second;
    if (MustStay(entry)) return false;
    if (entry.locked && !entry.region->object().IsLockedByOther()) {
      entry.region->object().Unlink();
      ++ended_with_client_;
      return true;
    }
    if (entry.region->retired()) return true;
    if (IsUsed(entry) || now - entry.last_used < limits_.idle) return false;
    ++ended_idle_;
    return true;
  });
}

}  // namespace deepencoder
