// The name of a result: equal jobs have equal keys, different ones do not (SHA-256).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>

#include "server/engine/engine.h"

namespace deepencoder {

struct ContentKey {
  std::array<uint8_t, 32> digest;
  bool operator==(const ContentKey&) const = default;
};

struct ContentKeyHash {
  size_t operator()(const ContentKey& key) const {
    size_t hash;
    std::memcpy(&hash, key.digest.data(), sizeof hash);  // the digest is uniform already
    return hash;
  }
};

// Of the image's bytes, everything in the job that changes its result, and `generation`, which tells
// weights apart. Reads the whole image. Nothing if the library refuses the hash.
std::optional<ContentKey> KeyOf(const EncodeJob& job, uint64_t generation);

}  // namespace deepencoder
