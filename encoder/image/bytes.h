// Bounds-checked integers from an untrusted file.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string_view>

namespace deepencoder {

using Bytes = std::span<const std::byte>;

inline const uint8_t* AsUint8(Bytes bytes) {
  return reinterpret_cast<const uint8_t*>(bytes.data());
}
inline std::string_view AsText(Bytes bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// `size` bytes from `at`, or as many of them as there are.
inline Bytes Slice(Bytes bytes, size_t at, size_t size = SIZE_MAX) {
  if (at >= bytes.size()) return {};
  return bytes.subspan(at, std::min(size, bytes.size() - at));
}

// The unsigned integer of `size` bytes (at most 4) at offset `at`; nullopt past the end.
inline std::optional<uint32_t> ReadInteger(Bytes bytes, size_t at, size_t size, std::endian order) {
  if (size > bytes.size() || at > bytes.size() - size) return std::nullopt;
  uint32_t value = 0;
  for (size_t i = 0; i < size; ++i) {
    const size_t byte = order == std::endian::big ? i : size - 1 - i;
    value = value << 8 | std::to_integer<uint32_t>(bytes[at + byte]);
  }
  return value;
}

inline bool StartsWith(Bytes bytes, std::string_view prefix) {
  return AsText(bytes).substr(0, prefix.size()) == prefix;
}

}  // namespace deepencoder
