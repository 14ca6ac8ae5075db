// Collects queries until a kernel's tile is full.
#pragma once

#include <cstddef>

#include "encoder/cpu/kernels.h"

namespace deepencoder::cpu {

class QueryTileBuilder {
 public:
  void Add(const std::byte* qkv_row, std::byte* out_row, int y, int x) {
    qkv_[count_] = qkv_row;
    out_[count_] = out_row;
    y_[count_] = static_cast<short>(y);
    x_[count_] = static_cast<short>(x);
    ++count_;
  }
  int count() const { return count_; }
  QueryTile tile() const { return {count_, qkv_, out_, y_, x_}; }
  void Clear() { count_ = 0; }

 private:
  static constexpr int kMost = 128;  // at least every kernel's query_tile
  int count_ = 0;
  const void* qkv_[kMost];
  void* out_[kMost];
  short y_[kMost], x_[kMost];
};

}  // namespace deepencoder::cpu
