#include "encoder/cuda/arena.h"

#include <algorithm>
#include <numeric>

namespace deepencoder::cuda {

int ArenaPlan::Add(size_t bytes, int first, int last) {
  const size_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  buffers_.push_back({rounded, first, last});
  return static_cast<int>(buffers_.size()) - 1;
}

void ArenaPlan::Place() {
  std::vector<int> order(buffers_.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int a, int b) { return buffers_[a].bytes > buffers_[b].bytes; });
  std::vector<const Buffer*> placed;  // by offset
  for (const int index : order) {
    Buffer& buffer = buffers_[index];
    size_t at = 0;
    for (const Buffer* other : placed) {
      const bool together = other->first <= buffer.last && buffer.first <= other->last;
      if (together && at + buffer.bytes > other->offset)
        at = std::max(at, other->offset + other->bytes);
    }
    buffer.offset = at;
    bytes_ = std::max(bytes_, at + buffer.bytes);
    placed.insert(
        std::upper_bound(placed.begin(), placed.end(), &buffer,
                         [](const Buffer* a, const Buffer* b) { return a->offset < b->offset; }),
        &buffer);
  }
}

}  // namespace deepencoder::cuda
