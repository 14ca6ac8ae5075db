// Memory of this client that a server can open, given out in blocks. Knows nothing of servers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace deepencoder::client {

// A named object has its name only between Create and Unlink. Either kind is locked (flock) before anybody
// can find it and for as long as it lives, so that the server sees when this process has ended. Thread-safe.
class SharedPool : public std::enable_shared_from_this<SharedPool> {
 public:
  // Bytes up to the next multiple of 64, a cache line: where a block begins, and rows behind an image.
  static constexpr uint64_t Rounded(uint64_t bytes) { return (bytes + 63) / 64 * 64; }

  // Bytes of the pool, given back when it goes.
  class Block {
   public:
    Block(std::shared_ptr<SharedPool> pool, uint64_t offset, uint64_t size);
    Block(Block&& other) noexcept = default;
    Block& operator=(Block&& other) noexcept;  // swaps
    ~Block();

    char* data() const { return pool_->memory_ + offset_; }
    uint64_t offset() const { return offset_; }
    uint64_t size() const { return size_; }
    const std::shared_ptr<SharedPool>& pool() const { return pool_; }
    // Gives back all but `size` bytes from `from`, which lies at a multiple of 64 in the block.
    void Keep(uint64_t from, uint64_t size);
    // Never gives the bytes out again: a server may still write there.
    void Abandon() { abandoned_ = true; }

   private:
    std::shared_ptr<SharedPool> pool_;  // null: moved from
    uint64_t offset_, size_;
    bool abandoned_ = false;
  };

  enum class Kind : uint8_t {
    kMemfd,  // whose size cannot change any more: a server that sees this process may map it
    kNamed,  // a POSIX shared memory object: any server with the same /dev/shm can open it
  };

  // Of `bytes`, under a random name. Of a named object all is allocated, and the names are removed that
  // clients left who were killed just then.
  // Errors: RESOURCE_EXHAUSTED (no room in /dev/shm, no memory), INTERNAL, UNIMPLEMENTED (no memfd here).
  static absl::StatusOr<std::shared_ptr<SharedPool>> Create(uint64_t bytes, Kind kind);
  ~SharedPool();
  SharedPool(const SharedPool&) = delete;
  SharedPool& operator=(const SharedPool&) = delete;

  Kind kind() const { return kind_; }
  const std::string& name() const { return name_; }
  int descriptor() const { return fd_; }
  uint64_t size() const { return size_; }
  // Removes the name, if it has one; whoever has opened the object keeps it.
  void Unlink();

  // Nothing if there is no room.
  std::optional<Block> Take(uint64_t size);
  // Whether much of it was abandoned, and a new pool should take its place.
  bool worn() const;

 private:
  SharedPool(Kind kind, std::string name, int fd, char* memory, uint64_t size);

  void GiveBack(uint64_t offset, uint64_t size, bool abandoned);

  const Kind kind_;
  const std::string name_;
  const int fd_;
  char* const memory_;
  const uint64_t size_;
  mutable std::mutex mutex_;
  std::map<uint64_t, uint64_t> free_;  // offset -> size; no two touch
  uint64_t abandoned_ = 0;             // bytes
  bool linked_;
};

}  // namespace deepencoder::client
