// A client's memory, read and written by offset: a POSIX shared memory object (a file in /dev/shm) or a memfd.
//
// A file in /dev/shm is never mapped. The client may cut it at any time, and an access to a mapping behind the
// file's end kills the process with SIGBUS; pread and pwrite then end short. A memfd that is sealed against
// that (F_SEAL_SHRINK, which nobody can take back) is mapped: copying takes half the time so, and rows can be
// written where they are wanted at once. Nothing is read where it lies: a decoder must not read bytes that another
// process changes while it looks.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace deepencoder {

// Where a memfd is open.
struct MemfdPlace {
  int process = 0;     // id
  int descriptor = 0;  // of that process
};

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
  // The first `bytes` of the memfd that was made with `name`, of this process' user, in memory (no huge pages,
  // of which there may be none when they are touched) and sealed against shrinking.
  // Errors: NOT_FOUND (none of that name and user is to be seen there, whatever else is), INVALID_ARGUMENT (has
  // fewer bytes), FAILED_PRECONDITION (not sealed, or not in memory), RESOURCE_EXHAUSTED (file descriptors,
  // addresses), UNIMPLEMENTED (not on this host), INTERNAL.
  static absl::StatusOr<SharedObject> OpenMemfd(const std::string& name, const MemfdPlace& place,
                                                uint64_t bytes);

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

  // A part of the mapping, which lives as long as this; empty if there is none.
  // Errors: FAILED_PRECONDITION (does not lie in it).
  absl::StatusOr<std::span<std::byte>> Memory(uint64_t offset, size_t size) const;

  // Whether another process holds flock(2) on the file. The kernel lets go of it when that process ends,
  // however it ends.
  bool IsLockedByOther() const;

  // Removes the name, if it has one and it is still this file's.
  void Unlink() const;

 private:
  SharedObject(std::string name, int fd, Identity identity, std::span<std::byte> memory = {});

  const std::string name_;
  int fd_;
  const Identity identity_;
  std::span<std::byte> memory_;  // empty: not mapped
};

}  // namespace deepencoder
