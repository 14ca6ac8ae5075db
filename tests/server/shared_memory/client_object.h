// Shared memory as a client makes it, for the tests; ends with its owner.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <string>

namespace deepencoder {

class ClientFile {
 public:
  static constexpr char kPrefix[] = "deepencoder-test";

  ClientFile(const ClientFile&) = delete;
  ClientFile& operator=(const ClientFile&) = delete;

  // A name of this process that no object has.
  static std::string NewName() {
    static std::atomic<int> made{0};
    return std::string(kPrefix) + "-" + std::to_string(getpid()) + "-" + std::to_string(made++);
  }

  const std::string& name() const { return name_; }
  int fd() const { return fd_; }

  void Resize(size_t bytes) const { EXPECT_EQ(ftruncate(fd_, static_cast<off_t>(bytes)), 0); }
  void Lock() const { EXPECT_EQ(flock(fd_, LOCK_SH | LOCK_NB), 0); }
  // What the kernel does for a client that was killed.
  void Close() {
    if (fd_ >= 0) close(fd_);
    fd_ = -1;
  }
  size_t size() const {
    struct stat file {};
    EXPECT_EQ(fstat(fd_, &file), 0);
    return static_cast<size_t>(file.st_size);
  }

  void Put(size_t offset, const std::string& bytes) const {
    EXPECT_EQ(pwrite(fd_, bytes.data(), bytes.size(), static_cast<off_t>(offset)),
              static_cast<ssize_t>(bytes.size()));
  }
  std::string Get(size_t offset, size_t size) const {
    std::string bytes(size, '\0');
    EXPECT_EQ(pread(fd_, bytes.data(), size, static_cast<off_t>(offset)),
              static_cast<ssize_t>(size));
    return bytes;
  }

 protected:
  ClientFile() : name_(NewName()) {}
  ~ClientFile() { Close(); }
  void Open(int fd, size_t bytes) {
    EXPECT_GE(fd, 0) << name_;
    fd_ = fd;
    Resize(bytes);
  }

 private:
  const std::string name_;
  int fd_ = -1;
};

// A POSIX shared memory object.
class ClientObject : public ClientFile {
 public:
  explicit ClientObject(size_t bytes, bool locked = true) {
    Open(open(path().c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600), bytes);
    if (locked) Lock();
  }
  ~ClientObject() { Unlink(); }

  std::string key() const { return "/" + name(); }
  std::string path() const { return "/dev/shm/" + name(); }
  void Unlink() const { unlink(path().c_str()); }
  bool has_name() const { return access(path().c_str(), F_OK) == 0; }
};

class ClientMemfd : public ClientFile {
 public:
  explicit ClientMemfd(size_t bytes, int seals = F_SEAL_SHRINK, unsigned flags = 0) {
    Open(memfd_create(name().c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING | flags), bytes);
    Lock();
    EXPECT_EQ(fcntl(fd(), F_ADD_SEALS, seals), 0);
  }
};

// Descriptors of this process.
inline int OpenDescriptors() {
  int count = 0;
  for (int fd = 0; fd < 4096; ++fd) count += fcntl(fd, F_GETFD) >= 0 ? 1 : 0;
  return count;
}

}  // namespace deepencoder
