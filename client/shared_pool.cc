#include "client/shared_pool.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <random>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"

namespace deepencoder::client {
namespace {

constexpr char kFolder[] = "/dev/shm/";
// Begins as the server's --shared-memory-prefix does, unless that was changed.
constexpr char kNameStart[] = "deepencoder-client-";

absl::Status Failed(const char* what, int error) {
  const std::string text = absl::StrCat("shared memory: ", what, ": ", std::strerror(error));
  const bool room = error == ENOSPC || error == ENOMEM || error == EMFILE || error == ENFILE;
  return room ? absl::ResourceExhaustedError(text) : absl::InternalError(text);
}

std::string RandomName() {
  std::random_device device;
  std::string name = kNameStart;
  for (int i = 0; i < 4; ++i) {
    const uint32_t word = device();
    absl::StrAppend(&name, absl::Hex(word, absl::kZeroPad8));
  }
  return name;
}

// Whose process has ended: nobody holds the lock that every such object has while it has a name.
bool IsLeftOver(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0) return false;
  struct stat file {};
  const bool left = fstat(fd, &file) == 0 && S_ISREG(file.st_mode) && file.st_uid == geteuid() &&
                    flock(fd, LOCK_EX | LOCK_NB) == 0;
  close(fd);
  return left;
}

void RemoveLeftOvers() {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(kFolder, error)) {
    const std::string path = entry.path();
    if (!path.starts_with(std::string(kFolder) + kNameStart)) continue;
    if (IsLeftOver(path)) unlink(path.c_str());
  }
}

// Allocates, locks and names the file of `fd`. The name comes last: an object that has one is locked.
absl::Status Furnish(int fd, uint64_t bytes, const std::string& name) {
  // All pages now: a full /dev/shm is then an error here, and not a signal at some later access.
  const int error = posix_fallocate(fd, 0, static_cast<off_t>(bytes));
  if (error != 0) return Failed("no room in /dev/shm", error);
  if (flock(fd, LOCK_SH | LOCK_NB) != 0) return Failed("locking", errno);
  const std::string self = absl::StrCat("/proc/self/fd/", fd);
  if (linkat(AT_FDCWD, self.c_str(), AT_FDCWD, (kFolder + name).c_str(), AT_SYMLINK_FOLLOW) != 0) {
    return Failed("naming", errno);
  }
  return absl::OkStatus();
}

// The memory of a memfd is taken as it is used, like any other.
absl::Status Seal(int fd, uint64_t bytes) {
  if (ftruncate(fd, static_cast<off_t>(bytes)) != 0) return Failed("its size", errno);
  if (flock(fd, LOCK_SH | LOCK_NB) != 0) return Failed("locking", errno);
  if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return Failed("sealing", errno);
  }
  return absl::OkStatus();
}

// The descriptor of an object that nobody can find yet.
absl::StatusOr<int> Open(SharedPool::Kind kind, const std::string& name) {
  const bool memfd = kind == SharedPool::Kind::kMemfd;
  const int fd = memfd ? memfd_create(name.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING)
                       : open(kFolder, O_TMPFILE | O_RDWR | O_CLOEXEC, S_IRUSR | S_IWUSR);
  if (fd >= 0) return fd;
  if (memfd && (errno == ENOSYS || errno == EPERM)) {
    return absl::UnimplementedError("shared memory: no memfd on this system");
  }
  return Failed(memfd ? "making a memfd" : "making an object in /dev/shm", errno);
}

}  // namespace

absl::StatusOr<std::shared_ptr<SharedPool>> SharedPool::Create(uint64_t bytes, Kind kind) {
  if (bytes == 0 || bytes > static_cast<uint64_t>(INT64_MAX)) {
    return absl::InvalidArgumentError("shared memory of 0 bytes, or of too many");
  }
  if (kind == Kind::kNamed) RemoveLeftOvers();
  std::string name = RandomName();
  const absl::StatusOr<int> fd = Open(kind, name);
  if (!fd.ok()) return fd.status();
  const absl::Status status = kind == Kind::kMemfd ? Seal(*fd, bytes) : Furnish(*fd, bytes, name);
  if (!status.ok()) {
    close(*fd);
    return status;
  }
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, *fd, 0);
  if (memory == MAP_FAILED) {
    const int error = errno;
    if (kind == Kind::kNamed) unlink((kFolder + name).c_str());
    close(*fd);
    return Failed("mapping", error);
  }
  return std::shared_ptr<SharedPool>(
      new SharedPool(kind, std::move(name), *fd, static_cast<char*>(memory), bytes));
}

SharedPool::SharedPool(Kind kind, std::string name, int fd, char* memory, uint64_t size)
    : kind_(kind),
      name_(std::move(name)),
      fd_(fd),
      memory_(memory),
      size_(size),
      free_({{0, size}}),
      linked_(kind == Kind::kNamed) {}

SharedPool::~SharedPool() {
  Unlink();
  munmap(memory_, size_);
  close(fd_);
}

void SharedPool::Unlink() {
  const std::lock_guard lock(mutex_);
  if (std::exchange(linked_, false)) unlink((kFolder + name_).c_str());
}

std::optional<SharedPool::Block> SharedPool::Take(uint64_t size) {
  if (size > size_) return std::nullopt;  // and no sum below wraps
  const uint64_t rounded = Rounded(size);
  const std::lock_guard lock(mutex_);
  for (auto at = free_.begin(); at != free_.end(); ++at) {
    const auto [offset, room] = *at;
    if (room < rounded) continue;
    free_.erase(at);
    if (room > rounded) free_.emplace(offset + rounded, room - rounded);
    return std::optional<Block>(std::in_place, shared_from_this(), offset, rounded);
  }
  return std::nullopt;
}

bool SharedPool::worn() const {
  const std::lock_guard lock(mutex_);
  return abandoned_ > size_ / 4;
}

void SharedPool::GiveBack(uint64_t offset, uint64_t size, bool abandoned) {
  const std::lock_guard lock(mutex_);
  if (abandoned) {
    abandoned_ += size;
    return;
  }
  const auto next = free_.lower_bound(offset);
  if (next != free_.end() && offset + size == next->first) {
    size += next->second;
    free_.erase(next);
  }
  const auto after = free_.lower_bound(offset);
  if (after != free_.begin()) {
    const auto before = std::prev(after);
    if (before->first + before->second == offset) {
      before->second += size;
      return;
    }
  }
  free_.emplace(offset, size);
}

SharedPool::Block::Block(std::shared_ptr<SharedPool> pool, uint64_t offset, uint64_t size)
    : pool_(std::move(pool)), offset_(offset), size_(size) {}

SharedPool::Block& SharedPool::Block::operator=(Block&& other) noexcept {
  std::swap(pool_, other.pool_);
  std::swap(offset_, other.offset_);
  std::swap(size_, other.size_);
  std::swap(abandoned_, other.abandoned_);
  return *this;
}

void SharedPool::Block::Keep(uint64_t from, uint64_t size) {
  const uint64_t end = Rounded(from + size);
  if (from > 0) pool_->GiveBack(offset_, from, abandoned_);
  if (end < size_) pool_->GiveBack(offset_ + end, size_ - end, abandoned_);
  offset_ += from;
  size_ = end - from;
}

SharedPool::Block::~Block() {
  if (pool_ != nullptr) pool_->GiveBack(offset_, size_, abandoned_);
}

}  // namespace deepencoder::client
