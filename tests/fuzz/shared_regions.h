// Regions of shared memory, as clients register them.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "server/shared_memory/region.h"
#include "tests/fuzz/fuzz_target.h"

namespace deepencoder::fuzz {

inline constexpr uint64_t kRegionBytes = 512;

// Two, of objects that have no names any more: "in" lies in its object, "cut" ends behind it, as if its
// client had cut the file.
class SharedRegions {
 public:
  SharedRegions() : in_(Make("in", 64)), cut_(Make("cut", 128)) {}

  absl::StatusOr<std::shared_ptr<const Region>> Find(const std::string& name) const {
    for (const auto& region : {in_, cut_}) {
      if (region->spec().name == name) return region;
    }
    return absl::NotFoundError("no region has this name");
  }

  // A promise of what takes windows.
  static void RequireInside(const RegionWindow& window) {
    Require(window.region != nullptr && window.size > 0, "a window is one of a region");
    Require(window.offset <= kRegionBytes && window.size <= kRegionBytes - window.offset,
            "a window lies in its region");
  }

  static void RequireRefusal(const absl::Status& status) {
    if (absl::IsNotFound(status) || absl::IsFailedPrecondition(status)) return;
    fuzz::RequireRefusal(status);
  }

 private:
  static std::shared_ptr<const Region> Make(const std::string& region, uint64_t offset) {
    const std::string name = "deepencoder-fuzz-" + std::to_string(getpid()) + "-" + region;
    const std::string path = "/dev/shm/" + name;
    const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    Require(fd >= 0 && ftruncate(fd, kRegionBytes + 64) == 0, "shared memory can be made");
    close(fd);
    absl::StatusOr<SharedObject> object = SharedObject::Open(name);
    unlink(path.c_str());
    Require(object.ok(), "a client's object can be opened");
    return std::make_shared<const Region>(RegionSpec{region, "/" + name, offset, kRegionBytes},
                                          *std::move(object), std::make_shared<RegionUsage>());
  }

  const std::shared_ptr<const Region> in_, cut_;
};

}  // namespace deepencoder::fuzz
