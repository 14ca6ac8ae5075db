// One safetensors file, mapped for reading.
//
// Format: 8 bytes little-endian n; n bytes of JSON, spaces after it allowed, that give every
// tensor's dtype, shape and [begin, end) in the data; the data, to the end of the file, without
// holes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace deepencoder {

struct SafetensorsTensor {
  std::string dtype;  // as the file names it: "BF16"
  std::vector<int64_t> shape;
  const std::byte* data;  // in the mapping, aligned to a byte only
  size_t bytes;
};

// "[768, 3, 16, 16]", for messages.
std::string ShapeText(const std::vector<int64_t>& shape);

// Immutable and thread-safe; tensors' data lives as long as the file object. A file that is
// truncated while it is mapped raises SIGBUS on access, as with any mapping: replace files by
// renaming.
class SafetensorsFile {
 public:
  static constexpr size_t kMaxHeaderBytes = size_t{16} << 20;  // DeepSeek-OCR's has 0.3 MB

  // Checks the whole header against the file's size before a tensor can be reached. Errors,
  // starting with the path: NOT_FOUND, INVALID_ARGUMENT (malformed: names the tensor and what was
  // expected).
  static absl::StatusOr<std::unique_ptr<SafetensorsFile>> Open(const std::string& path);
  ~SafetensorsFile();
  SafetensorsFile(const SafetensorsFile&) = delete;
  SafetensorsFile& operator=(const SafetensorsFile&) = delete;

  const std::string& path() const { return path_; }
  const std::map<std::string, SafetensorsTensor, std::less<>>& tensors() const { return tensors_; }

  // Drops the tensor's pages from this process; touching them reads the file again.
  void Release(const SafetensorsTensor& tensor) const;

 private:
  SafetensorsFile(std::string path, const std::byte* mapping, size_t mapped_bytes)
      : path_(std::move(path)), mapping_(mapping), mapped_bytes_(mapped_bytes) {}
  absl::Status ReadHeader();

  std::string path_;
  const std::byte* mapping_;
  size_t mapped_bytes_;
  std::map<std::string, SafetensorsTensor, std::less<>> tensors_;
};

}  // namespace deepencoder
