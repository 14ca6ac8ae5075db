#include "server/security/watched_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "encoder/base/descriptor.h"
#include "server/engine/thread_name.h"

namespace deepencoder {
namespace {

constexpr off_t kLargest = off_t{1} << 20;
constexpr mode_t kForbidden = S_IWGRP | S_IROTH | S_IWOTH;

int64_t Nanoseconds(const timespec& time) {
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

absl::Status Failed(const std::string& path, int error) {
  const std::string text = absl::StrCat(path, ": ", std::strerror(error));
  if (error == ENOENT) return absl::NotFoundError(text);
  if (error == EACCES || error == EPERM) return absl::PermissionDeniedError(text);
  return absl::UnavailableError(text);
}

std::string OctalMode(mode_t mode) {
  char text[8];
  std::snprintf(text, sizeof(text), "%03o", static_cast<unsigned>(mode & 0777));
  return text;
}

absl::StatusOr<std::string> Read(const std::string& path, mode_t forbidden) {
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.get() < 0) return Failed(path, errno);
  struct stat status {};
  if (fstat(file.get(), &status) != 0) return Failed(path, errno);
  if (!S_ISREG(status.st_mode) || status.st_size > kLargest) {
    return absl::InvalidArgumentError(path + " is not a regular file of at most 1 MiB");
  }
  if ((status.st_mode & forbidden) != 0) {
    return absl::PermissionDeniedError(
        absl::StrCat(path, " may be read by everybody, or changed by others than its owner (mode ",
                     OctalMode(status.st_mode), "); chmod 600 it, or 640 for its group"));
  }
  std::string content(static_cast<size_t>(status.st_size), '\0');
  size_t at = 0;
  while (at < content.size()) {
    const ssize_t got = read(file.get(), content.data() + at, content.size() - at);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Failed(path, errno);
    if (got == 0) break;
    at += static_cast<size_t>(got);
  }
  content.resize(at);
  return content;
}

}  // namespace

std::vector<FileStamp> StampsOf(const std::vector<std::string>& paths) {
  std::vector<FileStamp> stamps;
  for (const std::string& path : paths) {
    struct stat status {};
    FileStamp stamp;
    if (stat(path.c_str(), &status) == 0) {
      stamp = {status.st_dev, status.st_ino, status.st_size, Nanoseconds(status.st_mtim),
               Nanoseconds(status.st_ctim)};
    }
    stamps.push_back(stamp);
  }
  return stamps;
}

absl::StatusOr<std::string> ReadSecretFile(const std::string& path) {
  return Read(path, kForbidden);
}

absl::StatusOr<std::string> ReadSmallFile(const std::string& path) { return Read(path, 0); }

WatchedFiles::WatchedFiles(std::vector<std::string> paths, std::vector<FileStamp> seen,
                           absl::Duration period, Changed changed)
    : paths_(std::move(paths)),
      period_(period),
      changed_(std::move(changed)),
      thread_([this, seen = std::move(seen)]() mutable { Run(std::move(seen)); }) {}

WatchedFiles::~WatchedFiles() {
  {
    const MutexLock lock(mutex_);
    stop_ = true;
  }
  stopping_.NotifyAll();
  thread_.join();
}

void WatchedFiles::Run(std::vector<FileStamp> seen) {
  NameThisThread("watch-files");
  std::optional<std::vector<FileStamp>> settling;
  bool used = true;
  while (true) {
    {
      MutexLock lock(mutex_);
      if (!stop_) stopping_.WaitFor(mutex_, period_);
      if (stop_) return;
    }
    std::vector<FileStamp> now = StampsOf(paths_);
    if (now == seen) {
      settling.reset();
      if (!used) used = changed_(Why::kAgain);
    } else if (settling == now) {
      seen = *std::exchange(settling, std::nullopt);
      used = changed_(Why::kChanged);
    } else {
      settling = std::move(now);
    }
  }
}

}  // namespace deepencoder
