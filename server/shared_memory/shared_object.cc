#include "server/shared_memory/shared_object.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "encoder/base/descriptor.h"

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

std::string DescriptorPath(const std::string& process, int fd) {
  return absl::StrCat("/proc/", process, "/fd/", fd);
}

// What the kernel calls the file of a descriptor; empty if it is not to be seen.
std::string LinkText(const std::string& path) {
  char text[512];
  const ssize_t size = readlink(path.c_str(), text, sizeof(text));
  return size < 0 ? std::string() : std::string(text, static_cast<size_t>(size));
}

absl::Status CheckMemfd(const std::string& name, int fd) {
  struct statfs system {};
  if (fstatfs(fd, &system) != 0 || system.f_type != TMPFS_MAGIC) {
    return absl::FailedPreconditionError(
        absl::StrCat("memfd ", name, ": is not in ordinary memory (MFD_HUGETLB?)"));
  }
  const int seals = fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("memfd ", name, ": must be sealed with F_SEAL_SHRINK"));
  }
  return absl::OkStatus();
}

// A page of a memfd is counted when it is touched, and where the kernel promises no more memory than it has
// (vm.overcommit_memory = 2) it may be refused then, which is SIGBUS like a page behind the end.
absl::Status CheckOvercommit() {
  const Descriptor file(open("/proc/sys/vm/overcommit_memory", O_RDONLY | O_CLOEXEC));
  char mode = '0';
  if (file.get() < 0 || read(file.get(), &mode, 1) != 1 || mode != '2') return absl::OkStatus();
  return absl::UnimplementedError(
      "no memfd is mapped where vm.overcommit_memory is 2, for touching it might end this server; "
      "register a named object");
}

}  // namespace

absl::StatusOr<SharedObject> SharedObject::Open(const std::string& name) {
  // O_NONBLOCK: a FIFO is refused below and not waited for.
  Descriptor opened(
      open(PathOf(name).c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY));
  struct stat file {};
  if (opened.get() < 0 || fstat(opened.get(), &file) != 0) return OpenFailed(name, errno);
  if (absl::Status status = CheckFile(name, file); !status.ok()) return status;
  return SharedObject(name, opened.Release(), {file.st_dev, file.st_ino});
}

absl::StatusOr<SharedObject> SharedObject::OpenMemfd(const std::string& name,
                                                     const MemfdPlace& place, uint64_t bytes) {
  // One error for all that may be there instead, so that nobody learns what other processes have open.
  const auto missing = [&] {
    return absl::NotFoundError(absl::StrCat("process ", place.process, " has no memfd ", name,
                                            " as descriptor ", place.descriptor,
                                            ", or this server cannot see it"));
  };
  // O_PATH: whatever it is, opening it so does nothing to it.
  const std::string path = DescriptorPath(absl::StrCat(place.process), place.descriptor);
  const Descriptor found(open(path.c_str(), O_PATH | O_CLOEXEC));
  if (found.get() < 0) {
    return errno == EMFILE || errno == ENFILE ? OpenFailed(name, errno) : missing();
  }
  const std::string self = DescriptorPath("self", found.get());
  struct stat file {};
  if (LinkText(self) != absl::StrCat("/memfd:", name, " (deleted)") ||
      fstat(found.get(), &file) != 0 || !S_ISREG(file.st_mode) || file.st_uid != geteuid()) {
    return missing();
  }
  Descriptor opened(open(self.c_str(), O_RDWR | O_CLOEXEC));
  if (opened.get() < 0) return OpenFailed(name, errno);
  if (absl::Status status = CheckMemfd(name, opened.get()); !status.ok()) return status;
  // Its size, now that it cannot shrink.
  if (fstat(opened.get(), &file) != 0) return OpenFailed(name, errno);
  if (bytes == 0 || static_cast<uint64_t>(file.st_size) < bytes) {
    return absl::InvalidArgumentError(absl::StrCat("memfd ", name, " has ", file.st_size,
                                                   " bytes; the region's end is at ", bytes));
  }
  if (absl::Status status = CheckOvercommit(); !status.ok()) return status;
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, opened.get(), 0);
  if (memory == MAP_FAILED) {
    return absl::ResourceExhaustedError(
        absl::StrCat("memfd ", name, ": mapping: ", std::strerror(errno)));
  }
  return SharedObject(name, opened.Release(), {file.st_dev, file.st_ino},
                      {static_cast<std::byte*>(memory), bytes});
}

SharedObject::SharedObject(std::string name, int fd, Identity identity, std::span<std::byte> memory)
    : name_(std::move(name)), fd_(fd), identity_(identity), memory_(memory) {}

SharedObject::SharedObject(SharedObject&& other) noexcept
    : name_(other.name_),
      fd_(std::exchange(other.fd_, -1)),
      identity_(other.identity_),
      memory_(std::exchange(other.memory_, {})) {}

SharedObject::~SharedObject() {
  if (!memory_.empty()) munmap(memory_.data(), memory_.size());
  if (fd_ >= 0) close(fd_);
}

absl::StatusOr<std::span<std::byte>> SharedObject::Memory(uint64_t offset, size_t size) const {
  if (memory_.empty()) return memory_;
  if (offset <= memory_.size() && size <= memory_.size() - offset) {
    return memory_.subspan(offset, size);
  }
  return absl::FailedPreconditionError(
      absl::StrCat("memfd ", name_, ": has ", memory_.size(), " bytes, fewer than the region"));
}

absl::StatusOr<uint64_t> SharedObject::Size() const {
  struct stat file {};
  if (fstat(fd_, &file) != 0) return OpenFailed(name_, errno);
  return static_cast<uint64_t>(file.st_size);
}

absl::Status SharedObject::Read(uint64_t offset, std::span<std::byte> to) const {
  if (!memory_.empty()) {
    const auto from = Memory(offset, to.size());
    if (!from.ok()) return from.status();
    std::memcpy(to.data(), from->data(), to.size());
    return absl::OkStatus();
  }
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
  if (!memory_.empty()) {
    const auto to = Memory(offset, from.size());
    if (!to.ok()) return to.status();
    std::memcpy(to->data(), from.data(), from.size());
    return absl::OkStatus();
  }
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
  if (!memory_.empty()) return;
  struct stat file {};
  const std::string path = PathOf(name_);
  if (lstat(path.c_str(), &file) != 0 || Identity{file.st_dev, file.st_ino} != identity_) return;
  unlink(path.c_str());
}

}  // namespace deepencoder
