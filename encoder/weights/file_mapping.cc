#include "encoder/weights/file_mapping.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

namespace deepencoder {
namespace {

// A protected range of addresses. Lock-free atomics, since a signal handler reads them.
struct Guard {
  std::atomic<bool> taken{false};
  std::atomic<uintptr_t> begin{0}, end{0};  // end is written last, and cleared first
  std::atomic<bool> torn{false};            // a page of it was replaced
};
static_assert(std::atomic<uintptr_t>::is_always_lock_free);

std::array<Guard, FileMapping::kMaxMappings> guards;
struct sigaction previous_action;
uintptr_t page_bytes;

void OnBusError(int, siginfo_t* info, void*) {
  const int saved = errno;
  const auto address = reinterpret_cast<uintptr_t>(info->si_addr);
  for (Guard& guard : guards) {
    if (address >= guard.end.load() || address < guard.begin.load()) continue;
    void* page = static_cast<std::byte*>(info->si_addr) - address % page_bytes;
    if (mmap(page, page_bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == page) {
      guard.torn = true;
      errno = saved;
      return;
    }
  }
  // Not of ours: the access is repeated, and the signal comes again to whom it belongs.
  sigaction(SIGBUS, &previous_action, nullptr);
  errno = saved;
}

void InstallHandler() {
  [[maybe_unused]] static const bool installed = [] {
    page_bytes = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
    struct sigaction action = {};
    action.sa_sigaction = OnBusError;
    action.sa_flags = SA_SIGINFO;
    sigemptyset(&action.sa_mask);
    sigaction(SIGBUS, &action, &previous_action);
    return true;
  }();
}

// Index of the entry that protects [data, data + size) now; -1 if none is free.
int Protect(const std::byte* data, size_t size) {
  InstallHandler();
  for (size_t i = 0; i < guards.size(); ++i) {
    if (guards[i].taken.exchange(true)) continue;
    guards[i].torn = false;
    guards[i].begin = reinterpret_cast<uintptr_t>(data);
    guards[i].end = reinterpret_cast<uintptr_t>(data) + size;
    return static_cast<int>(i);
  }
  return -1;
}

void Unprotect(int index) {
  guards[index].end = 0;
  guards[index].taken = false;
}

bool SameTime(const timespec& a, const timespec& b) {
  return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
}

}  // namespace

absl::StatusOr<std::unique_ptr<FileMapping>> FileMapping::Open(const std::string& path,
                                                               size_t least_bytes) {
  // Non-blocking, so that a named pipe in place of a file is refused below and not waited for.
  Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.get() < 0) {
    const std::string message = absl::StrCat(path, ": ", std::strerror(errno));
    return errno == ENOENT ? absl::NotFoundError(message) : absl::InvalidArgumentError(message);
  }
  struct stat info = {};
  if (fstat(file.get(), &info) != 0 || !S_ISREG(info.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": not a regular file"));
  }
  const auto size = static_cast<size_t>(info.st_size);
  if (size < least_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": ", size, " bytes are too few: at least ", least_bytes));
  }
  void* data = mmap(nullptr, size, PROT_READ, MAP_SHARED, file.get(), 0);
  if (data == MAP_FAILED) {
    return absl::ResourceExhaustedError(
        absl::StrCat(path, ": cannot map ", size, " bytes: ", std::strerror(errno)));
  }
  const int guard = Protect(static_cast<const std::byte*>(data), size);
  if (guard < 0) {
    munmap(data, size);
    return absl::ResourceExhaustedError(
        absl::StrCat(path, ": ", kMaxMappings, " files are mapped already, the most at a time"));
  }
  return std::unique_ptr<FileMapping>(new FileMapping(
      path, file.Release(), static_cast<const std::byte*>(data), size, info.st_mtim, guard));
}

FileMapping::FileMapping(std::string path, int fd, const std::byte* data, size_t size,
                         timespec modified, int guard)
    : path_(std::move(path)),
      file_(fd),
      data_(data),
      size_(size),
      modified_(modified),
      guard_(guard) {}

FileMapping::~FileMapping() {
  Unprotect(guard_);
  munmap(const_cast<std::byte*>(data_), size_);
}

absl::Status FileMapping::CheckUnchanged() const {
  struct stat info = {};
  const bool same = fstat(file_.get(), &info) == 0 && static_cast<size_t>(info.st_size) == size_ &&
                    SameTime(info.st_mtim, modified_);
  if (same && !guards[guard_].torn) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      path_, ": the file was changed while it was read: put files in place by renaming them"));
}

}  // namespace deepencoder
