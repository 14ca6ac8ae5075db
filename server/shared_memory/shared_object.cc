#include "server/shared_memory/shared_object.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

namespace deepencoder {
namespace {

// Where shm_open(3) keeps its objects.
constexpr char kFolder[] = "/dev/shm/";

std::string PathOf(const std::string& name) { return kFolder + name; }

absl::Status OpenFailed(const std::string& name, int error) {
  const std::string text = absl::StrCat("shared memory object ", name, ": ", std::strerror(error));
  switch (error) {
    case ENOENT:
      return absl::NotFoundError(text);
    case EACCES:
    case EPERM:
      return absl::PermissionDeniedError(text);
    case ELOOP:
      return absl::InvalidArgumentError(
          absl::StrCat("shared memory object ", name, ": a symbolic link; these are not followed"));
    case EISDIR:
    case ENXIO:
    case ENODEV:
      return absl::InvalidArgumentError(text);
    case EMFILE:
    case ENFILE:
      return absl::ResourceExhaustedError(text);
    default:
      return absl::InternalError(text);
  }
}

absl::Status CheckFile(const std::string& name, const struct stat& file) {
  if (!S_ISREG(file.st_mode)) {
    return absl::InvalidArgumentError(
        absl::StrCat("shared memory object ", name, ": not a regular file"));
  }
  if (file.st_uid != geteuid()) {
    return absl::PermissionDeniedError(absl::StrCat("shared memory object ", name,
                                                    ": belongs to user ", file.st_uid,
                                                    "; it must be the server's, ", geteuid()));
  }
  if (file.st_nlink != 1) {
    return absl::PermissionDeniedError(absl::StrCat("shared memory object ", name, ": has ",
                                                    file.st_nlink, " names; it must have one"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<SharedObject> SharedObject::Open(const std::string& name) {
  // O_NONBLOCK: a FIFO is refused below and not waited for.
  const int fd =
      open(PathOf(name).c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
  if (fd < 0) return OpenFailed(name, errno);
  struct stat file {};
  absl::Status status;
  if (fstat(fd, &file) != 0) {
    status = OpenFailed(name, errno);
  } else {
    status = CheckFile(name, file);
  }
  if (!status.ok()) {
    close(fd);
    return status;
  }
  return SharedObject(name, fd, {file.st_dev, file.st_ino});
}

SharedObject::SharedObject(std::string name, int fd, Identity identity)
    : name_(std::move(name)), fd_(fd), identity_(identity) {}

SharedObject::SharedObject(SharedObject&& other) noexcept
    : name_(other.name_), fd_(std::exchange(other.fd_, -1)), identity_(other.identity_) {}

SharedObject::~SharedObject() {
  if (fd_ >= 0) close(fd_);
}

absl::StatusOr<uint64_t> SharedObject::Size() const {
  struct stat file {};
  if (fstat(fd_, &file) != 0) return OpenFailed(name_, errno);
  return static_cast<uint64_t>(file.st_size);
}

absl::Status SharedObject::Read(uint64_t offset, std::span<std::byte> to) const {
  while (!to.empty()) {
    const ssize_t count = pread(fd_, to.data(), to.size(), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      return absl::InternalError(
          absl::StrCat("shared memory object ", name_, ": reading: ", std::strerror(errno)));
    }
    if (count == 0) {
      return absl::FailedPreconditionError(
          absl::StrCat("shared memory object ", name_, ": ends at byte ", offset,
                       ", within the region: its owner made it shorter"));
    }
    offset += static_cast<uint64_t>(count);
    to = to.subspan(static_cast<size_t>(count));
  }
  return absl::OkStatus();
}

absl::Status SharedObject::Write(uint64_t offset, std::span<const std::byte> from) const {
  // Writing behind the end would make the file longer. A client that cuts it after this look gets it
  // back, at most as long as its region, which is counted.
  const absl::StatusOr<uint64_t> size = Size();
  if (!size.ok()) return size.status();
  if (*size < offset + from.size()) {
    return absl::FailedPreconditionError(
        absl::StrCat("shared memory object ", name_, ": has ", *size,
                     " bytes, fewer than the region: its owner made it shorter"));
  }
  while (!from.empty()) {
    const ssize_t count = pwrite(fd_, from.data(), from.size(), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      const std::string text =
          absl::StrCat("shared memory object ", name_, ": writing: ", std::strerror(errno));
      return errno == ENOSPC ? absl::ResourceExhaustedError(text) : absl::InternalError(text);
    }
    offset += static_cast<uint64_t>(count);
    from = from.subspan(static_cast<size_t>(count));
  }
  return absl::OkStatus();
}

bool SharedObject::IsLockedByOther() const {
  if (flock(fd_, LOCK_EX | LOCK_NB) != 0) return true;
  flock(fd_, LOCK_UN);
  return false;
}

void SharedObject::Unlink() const {
  struct stat file {};
  const std::string path = PathOf(name_);
  if (lstat(path.c_str(), &file) != 0 || Identity{file.st_dev, file.st_ino} != identity_) return;
  unlink(path.c_str());
}

}  // namespace deepencoder
