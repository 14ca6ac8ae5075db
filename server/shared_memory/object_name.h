// Names of POSIX shared memory objects, as clients send them.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace deepencoder {

inline constexpr size_t kMaxObjectName = 128;  // bytes

// The file name in /dev/shm of the object that a client calls `key`: without the leading slash that
// shm_open(3) wants. Only letters, digits, '.', '_' and '-' are taken, so that no name is a path, and
// only names that begin with `prefix`, so that no client can point at the objects of other programs.
// Errors: INVALID_ARGUMENT with what is allowed.
absl::StatusOr<std::string> ParseObjectName(std::string_view key, std::string_view prefix);

}  // namespace deepencoder
