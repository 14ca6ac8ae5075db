// FNV-1a, 64 bits (Fowler, Noll, Vo): a small hash with a fixed definition, not for adversaries.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace deepencoder {

class Fnv1a64 {
 public:
  void Add(std::string_view bytes) {
    for (const char byte : bytes) {
      state_ = (state_ ^ static_cast<unsigned char>(byte)) * 0x100000001B3u;
    }
  }
  // As 8 little-endian bytes.
  void AddInteger(uint64_t value) {
    for (int shift = 0; shift < 64; shift += 8) {
      state_ = (state_ ^ ((value >> shift) & 0xFFu)) * 0x100000001B3u;
    }
  }
  uint64_t value() const { return state_; }

 private:
  uint64_t state_ = 0xCBF29CE484222325u;
};

}  // namespace deepencoder
