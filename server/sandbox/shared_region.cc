#include "server/sandbox/shared_region.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace deepencoder {

absl::StatusOr<std::unique_ptr<SharedRegion>> SharedRegion::Create(const char* name, size_t bytes) {
  const auto failed = [&](const char* call, int fd) {
    const int error = errno;
    if (fd >= 0) close(fd);
    return absl::ResourceExhaustedError(
        absl::StrCat("shared memory of ", bytes, " bytes: ", call, ": ", std::strerror(error)));
  };
  const int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) return failed("memfd_create", fd);
  if (ftruncate(fd, static_cast<off_t>(bytes)) != 0) return failed("ftruncate", fd);
  if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return failed("F_ADD_SEALS", fd);
  }
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (data == MAP_FAILED) return failed("mmap", fd);
  return std::unique_ptr<SharedRegion>(new SharedRegion(fd, static_cast<std::byte*>(data), bytes));
}

SharedRegion::~SharedRegion() {
  munmap(data_, bytes_);
  close(fd_);
}

void SharedRegion::Trim(size_t keep) const {
  // By what it holds: other processes fill pages as they like.
  constexpr uint64_t kBlock = 512;  // of st_blocks, always
  struct stat held = {};
  if (fstat(fd_, &held) == 0 && static_cast<uint64_t>(held.st_blocks) * kBlock <= keep) return;
  if (keep >= bytes_) return;
  // Whole pages alone are given back. Should it fail, memory stays taken, nothing else.
  (void)fallocate(fd_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(keep),
                  static_cast<off_t>(bytes_ - keep));
}

}  // namespace deepencoder
