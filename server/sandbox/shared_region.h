// Memory that two processes map.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <memory>

#include "absl/status/statusor.h"

namespace deepencoder {

// An anonymous file that nobody can make shorter or longer, so that reading it never faults, and its
// mapping. Pages take memory once they are touched.
class SharedRegion {
 public:
  // Errors: RESOURCE_EXHAUSTED.
  static absl::StatusOr<std::unique_ptr<SharedRegion>> Create(const char* name, size_t bytes);
  ~SharedRegion();
  SharedRegion(const SharedRegion&) = delete;
  SharedRegion& operator=(const SharedRegion&) = delete;

  int fd() const { return fd_; }
  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }

  // Of more than `keep` bytes of memory, gives back what lies past them; it reads as zeros then.
  void Trim(size_t keep) const;

 private:
  SharedRegion(int fd, std::byte* data, size_t bytes) : fd_(fd), data_(data), bytes_(bytes) {}

  const int fd_;
  std::byte* const data_;
  const size_t bytes_;
};

}  // namespace deepencoder
