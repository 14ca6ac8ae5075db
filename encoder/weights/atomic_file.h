// A file that appears under its name complete or not at all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace deepencoder {

// Writes go to a temporary file beside `path`; Commit renames it over `path`. Destroyed without
// Commit, it removes the temporary file and leaves `path` as it was.
class AtomicFile {
 public:
  // Errors, starting with the path: NOT_FOUND, PERMISSION_DENIED, RESOURCE_EXHAUSTED, INTERNAL.
  static absl::StatusOr<std::unique_ptr<AtomicFile>> Create(const std::string& path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  // Takes `bytes` of the disk now, so that a full one is known before the work is done.
  absl::Status Reserve(uint64_t bytes);
  // Thread-safe for ranges that do not overlap. RESOURCE_EXHAUSTED: no space, or over the file size
  // limit.
  absl::Status WriteAt(uint64_t offset, const void* data, size_t bytes);
  absl::Status Commit();

 private:
  AtomicFile(std::string path, std::string temporary, int fd);

  std::string path_, temporary_;
  int fd_;
};

// All of `text` as the content of `path`.
absl::Status WriteFileAtomically(const std::string& path, std::string_view text);

}  // namespace deepencoder
