#include "server/shared_memory/region.h"

#include <new>
#include <utility>

#include "absl/strings/str_cat.h"

namespace deepencoder {

Region::Region(RegionSpec spec, SharedObject object, std::shared_ptr<RegionUsage> usage)
    : spec_(std::move(spec)), object_(std::move(object)), usage_(std::move(usage)) {
  usage_->regions += 1;
  usage_->bytes += static_cast<int64_t>(spec_.size);
}

Region::~Region() {
  usage_->regions -= 1;
  usage_->bytes -= static_cast<int64_t>(spec_.size);
}

absl::Status Region::CheckRange(uint64_t offset, uint64_t size) const {
  // No sum of what a client sent: it might wrap.
  if (size > 0 && offset <= spec_.size && size <= spec_.size - offset) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("shared memory region ", spec_.name, " has ",
                                                 spec_.size, " bytes: ", size, " from ", offset,
                                                 " do not lie in it"));
}

absl::StatusOr<SharedBytes> Region::Read(uint64_t offset, uint64_t size) const {
  if (absl::Status status = CheckRange(offset, size); !status.ok()) return status;
  // Not made by make_shared, which would clear it first.
  const std::shared_ptr<std::byte[]> bytes(new (std::nothrow) std::byte[size]);
  if (bytes == nullptr) return absl::ResourceExhaustedError("no memory for the image");
  const std::span<std::byte> span(bytes.get(), size);
  if (absl::Status status = object_.Read(spec_.offset + offset, span); !status.ok()) return status;
  usage_->bytes_read += static_cast<int64_t>(size);
  return SharedBytes{bytes, span};
}

absl::Status Region::Write(uint64_t offset, std::span<const std::byte> bytes) const {
  if (absl::Status status = CheckRange(offset, bytes.size()); !status.ok()) return status;
  if (absl::Status status = object_.Write(spec_.offset + offset, bytes); !status.ok()) {
    return status;
  }
  CountWritten(bytes.size());
  return absl::OkStatus();
}

absl::StatusOr<std::span<std::byte>> Region::Memory(uint64_t offset, uint64_t size) const {
  if (absl::Status status = CheckRange(offset, size); !status.ok()) return status;
  return object_.Memory(spec_.offset + offset, size);
}

}  // namespace deepencoder
