// A client's POSIX shared memory object (a file in /dev/shm), read and written by offset.
//
// It is never mapped. The client may cut the file at any time, and an access to a mapping behind the
// file's end kills the process with SIGBUS; pread and pwrite then end short. A mapping would not save a
// copy either: a decoder must not read bytes that another process changes while it looks, and rows have
// to be copied to the client's memory whichever way.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace deepencoder {

// Thread-safe.
class SharedObject {
 public:
  // Which file it is, whatever its name.
  struct Identity {
    dev_t device;
    ino_t inode;
    bool operator==(const Identity&) const = default;
  };

  // `name` is one that ParseObjectName gave. No symbolic link is followed, and the file must be a
  // regular one with no other name, that belongs to this process' user: a client of that user could
  // open it itself, and no other user's file is ever touched, even by a server that may do anything.
  // Errors: NOT_FOUND, PERMISSION_DENIED, INVALID_ARGUMENT (no regular file), RESOURCE_EXHAUSTED (file
  // descriptors), INTERNAL.
  static absl::StatusOr<SharedObject> Open(const std::string& name);

  SharedObject(SharedObject&& other) noexcept;
  SharedObject& operator=(SharedObject&&) = delete;
  ~SharedObject();

  const Identity& identity() const { return identity_; }
  // Bytes of the file, now.
  absl::StatusOr<uint64_t> Size() const;

  // Errors: FAILED_PRECONDITION (the file ends before), RESOURCE_EXHAUSTED (Write: /dev/shm is full),
  // INTERNAL. What was read or written until then is undefined.
  absl::Status Read(uint64_t offset, std::span<std::byte> to) const;
  absl::Status Write(uint64_t offset, std::span<const std::byte> from) const;

  // Whether another process holds flock(2) on the file. The kernel lets go of it when that process ends,
  // however it ends.
  bool IsLockedByOther() const;

  // Removes the name, if it is still this file's.
  void Unlink() const;

 private:
  SharedObject(std::string name, int fd, Identity identity);

  const std::string name_;
  int fd_;
  const Identity identity_;
};

}  // namespace deepencoder
