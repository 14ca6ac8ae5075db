#include "encoder/cpu/arena.h"

#include <sys/mman.h>

#include <algorithm>
#include <new>
#include <utility>

namespace deepencoder::cpu {

Arena::Arena(Arena&& other) noexcept
    : chunks_(std::exchange(other.chunks_, {})),
      used_(std::exchange(other.used_, 0)),
      bytes_(std::exchange(other.bytes_, 0)) {}

Arena& Arena::operator=(Arena&& other) noexcept {
  std::swap(chunks_, other.chunks_);
  std::swap(used_, other.used_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

Arena::~Arena() {
  for (const Chunk& chunk : chunks_) munmap(chunk.data, chunk.size);
}

std::byte* Arena::Allocate(size_t bytes) {
  const size_t size = (std::max<size_t>(bytes, 1) + 63) / 64 * 64;
  if (chunks_.empty() || chunks_.back().size - used_ < size) {
    constexpr size_t kHugePage = size_t{2} << 20;
    const size_t chunk_size = std::max(kChunk, (size + kHugePage - 1) / kHugePage * kHugePage);
    void* data =
        mmap(nullptr, chunk_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) throw std::bad_alloc();
    madvise(data, chunk_size, MADV_HUGEPAGE);  // a hint: the result does not matter
    chunks_.push_back({static_cast<std::byte*>(data), chunk_size});
    used_ = 0;
  }
  std::byte* taken = chunks_.back().data + used_;
  used_ += size;
  bytes_ += size;
  return taken;
}

}  // namespace deepencoder::cpu
