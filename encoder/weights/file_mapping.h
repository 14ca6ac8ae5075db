// A file mapped for reading that others may change meanwhile.
#pragma once

#include <sys/stat.h>

#include <cstddef>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "encoder/base/descriptor.h"

namespace deepencoder {

// Reading past the end of a file that was cut short raises SIGBUS, which would end a server in the middle
// of its work. Of these mappings it does not: a handler puts zeros in the page's place, and
// CheckUnchanged says so. Signals for other memory go on to whoever handled them before. Thread-safe.
class FileMapping {
 public:
  static constexpr int kMaxMappings = 256;  // at a time, of the process

  // Errors, starting with the path: NOT_FOUND, INVALID_ARGUMENT (not a regular file, fewer than
  // `least_bytes`), RESOURCE_EXHAUSTED (addresses, kMaxMappings).
  static absl::StatusOr<std::unique_ptr<FileMapping>> Open(const std::string& path,
                                                           size_t least_bytes);
  ~FileMapping();
  FileMapping(const FileMapping&) = delete;
  FileMapping& operator=(const FileMapping&) = delete;

  const std::byte* data() const { return data_; }
  size_t size() const { return size_; }

  // Errors: FAILED_PRECONDITION if the file was written to or cut since Open, so that what was read may be of no
  // version of it. A file that took its name by renaming is no change of this one.
  absl::Status CheckUnchanged() const;

 private:
  FileMapping(std::string path, int fd, const std::byte* data, size_t size, timespec modified,
              int guard);

  const std::string path_;
  const Descriptor file_;
  const std::byte* const data_;
  const size_t size_;
  const timespec modified_;
  const int guard_;  // index of its entry among the protected
};

}  // namespace deepencoder
