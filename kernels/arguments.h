// Checks that launchers share. Each names the argument and what it must be.
#pragma once

#include <cstdint>
#include <string>

#include "encoder/base/dtype.h"
#include "kernels/status.h"

namespace deepencoder::kernels {

// Not null and aligned to `alignment` bytes.
inline Status CheckPointer(const void* pointer, const char* name, unsigned alignment = 16) {
  if (pointer == nullptr) return InvalidArgument(std::string(name) + " is null");
  if (reinterpret_cast<uintptr_t>(pointer) % alignment != 0) {
    return InvalidArgument(std::string(name) + " is not aligned to " + std::to_string(alignment) +
                           " bytes");
  }
  return {};
}

inline Status CheckRange(int64_t value, int64_t least, int64_t most, const char* name) {
  if (value < least || value > most) {
    return InvalidArgument(std::string(name) + " is " + std::to_string(value) + ", must lie in [" +
                           std::to_string(least) + ", " + std::to_string(most) + "]");
  }
  return {};
}

// A type the matrix units multiply.
inline Status CheckModelType(DType type, const char* name) {
  if (type != DType::kBf16 && type != DType::kFp16) {
    return InvalidArgument(std::string(name) + " must be bf16 or fp16");
  }
  return {};
}

inline int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace deepencoder::kernels
