#include "encoder/weights/atomic_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"

namespace deepencoder {
namespace {

absl::Status SystemError(const std::string& path, std::string_view what, int error) {
  const std::string message =
      absl::StrCat(path, ": ", std::string(what), ": ", std::strerror(error));
  switch (error) {
    case ENOENT:
    case ENOTDIR:
      return absl::NotFoundError(message);
    case EACCES:
    case EPERM:
    case EROFS:
      return absl::PermissionDeniedError(message);
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
      return absl::ResourceExhaustedError(message);
    default:
      return absl::InternalError(message);
  }
}

// Hidden, and unique among the processes and threads of this machine.
std::string TemporaryName(const std::string& path) {
  static std::atomic<unsigned> counter{0};
  const std::filesystem::path target(path);
  const std::string name =
      absl::StrCat(".", target.filename().string(), ".tmp-", getpid(), "-", counter.fetch_add(1));
  return (target.parent_path() / name).string();
}

}  // namespace

absl::StatusOr<std::unique_ptr<AtomicFile>> AtomicFile::Create(const std::string& path) {
  std::string temporary = TemporaryName(path);
  // A file of this name can only be left from a crashed process that had the same id.
  const int fd =
      open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0666);
  if (fd < 0) return SystemError(path, "cannot create a file beside it", errno);
  return std::unique_ptr<AtomicFile>(new AtomicFile(path, std::move(temporary), fd));
}

AtomicFile::AtomicFile(std::string path, std::string temporary, int fd)
    : path_(std::move(path)), temporary_(std::move(temporary)), fd_(fd) {}

AtomicFile::~AtomicFile() {
  if (fd_ >= 0) close(fd_);
  if (!temporary_.empty()) unlink(temporary_.c_str());
}

absl::Status AtomicFile::Reserve(uint64_t bytes) {
  const int error = posix_fallocate(fd_, 0, static_cast<off_t>(bytes));
  // Not every file system can; the writes themselves will tell then.
  if (error == 0 || error == EINVAL || error == EOPNOTSUPP) return absl::OkStatus();
  return SystemError(path_, absl::StrCat("cannot reserve ", bytes, " bytes"), error);
}

absl::Status AtomicFile::WriteAt(uint64_t offset, const void* data, size_t bytes) {
  const char* from = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t written = pwrite(fd_, from, bytes, static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      return SystemError(path_, absl::StrCat("cannot write at byte ", offset), errno);
    }
    from += written;
    offset += static_cast<uint64_t>(written);
    bytes -= static_cast<size_t>(written);
  }
  return absl::OkStatus();
}

absl::Status AtomicFile::Commit() {
  // Network file systems report a full disk here.
  const int closed = close(std::exchange(fd_, -1));
  if (closed != 0) return SystemError(path_, "cannot close", errno);
  if (std::rename(temporary_.c_str(), path_.c_str()) != 0) {
    return SystemError(path_, "cannot rename over it", errno);
  }
  temporary_.clear();
  return absl::OkStatus();
}

absl::Status WriteFileAtomically(const std::string& path, std::string_view text) {
  absl::StatusOr<std::unique_ptr<AtomicFile>> file = AtomicFile::Create(path);
  if (!file.ok()) return file.status();
  if (absl::Status status = (*file)->WriteAt(0, text.data(), text.size()); !status.ok()) {
    return status;
  }
  return (*file)->Commit();
}

}  // namespace deepencoder
