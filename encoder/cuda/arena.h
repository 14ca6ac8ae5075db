// Places buffers in one block of memory by their lifetimes: buffers that never live at the same time share
// bytes. Pure arithmetic, done once at load; nothing is allocated while encoding.
#pragma once

#include <cstddef>
#include <vector>

namespace deepencoder::cuda {

class ArenaPlan {
 public:
  static constexpr size_t kAlignment = 256;

  // A buffer of `bytes` that is written at step `first` or later and last read at step `last` (inclusive).
  // Returns its number.
  int Add(size_t bytes, int first, int last);

  // Gives every buffer its place: the largest first, each at the lowest offset where no buffer of an
  // overlapping lifetime lies.
  void Place();

  size_t offset(int buffer) const { return buffers_[buffer].offset; }
  size_t bytes() const { return bytes_; }  // of the whole arena

 private:
  struct Buffer {
    size_t bytes;
    int first, last;
    size_t offset = 0;
  };
  std::vector<Buffer> buffers_;
  size_t bytes_ = 0;
};

}  // namespace deepencoder::cuda
