// Memory that is handed out front to back and given back as a whole.
#pragma once

#include <cstddef>
#include <vector>

namespace deepencoder::cpu {

// Zeroed memory from the kernel in chunks of at least kChunk bytes, in huge pages where it grants
// them: weights and activations are streamed, and 4 KiB pages would cost a page walk every 4 KiB.
// Not thread-safe.
class Arena {
 public:
  Arena() = default;
  Arena(Arena&& other) noexcept;
  Arena& operator=(Arena&& other) noexcept;
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  ~Arena();

  // 64-byte aligned; lives as long as the arena. Throws std::bad_alloc.
  std::byte* Allocate(size_t bytes);
  template <class T>
  T* AllocateArray(size_t count) {
    return reinterpret_cast<T*>(Allocate(count * sizeof(T)));
  }

  size_t bytes() const { return bytes_; }  // handed out, alignment included

 private:
  static constexpr size_t kChunk = size_t{64} << 20;
  struct Chunk {
    std::byte* data;
    size_t size;
  };
  std::vector<Chunk> chunks_;
  size_t used_ = 0;  // of the last chunk
  size_t bytes_ = 0;
};

}  // namespace deepencoder::cpu
