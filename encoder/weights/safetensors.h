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
#include "encoder/weights/file_mapping.h"

namespace deepencoder {

struct SafetensorsTensor {
  std::string dtype;  // as the file names it: "BF16"
  std::vector<int64_t> shape;
  const std::byte* data;  // in the mapping, aligned to a byte only
  size_t bytes;
};

// "[768, 3, 16, 16]", for messages.
std::string ShapeText(const std::vector<int64_t>& shape);

// Immutable and thread-safe; tensors' data lives as long as the file object. Of a file that others
// change meanwhile, anything may be read: ask CheckUnchanged behind the last access.
class SafetensorsFile {
 public:
  static constexpr size_t kMaxHeaderBytes = size_t{16} << 20;  // DeepSeek-OCR's has 0.3 MB

  // Checks the whole header against the file's size before a tensor can be reached. Errors,
  // starting with the path: NOT_FOUND, INVALID_ARGUMENT (malformed: names the tensor and what was
  // expected).
  static absl::StatusOr<std::unique_ptr<SafetensorsFile>> Open(const std::string& path);
  SafetensorsFile(const SafetensorsFile&) = delete;
  SafetensorsFile& operator=(const SafetensorsFile&) = delete;

  const std::string& path() const { return path_; }
  const std::map<std::string, SafetensorsTensor, std::less<>>& tensors() const { return tensors_; }

  // Drops the tensor's pages from this process; touching them reads the file again.
  void Release(const SafetensorsTensor& tensor) const;

  // FileMapping's.
  absl::Status CheckUnchanged() const { return file_->CheckUnchanged(); }

 private:
  SafetensorsFile(std::string path, std::unique_ptr<FileMapping> file)
      : path_(std::move(path)),
        file_(std::move(file)),
        mapping_(file_->data()),
        mapped_bytes_(file_->size()) {}
  absl::Status ReadHeader();

  std::string path_;
  std::unique_ptr<FileMapping> file_;
  const std::byte* mapping_;
  size_t mapped_bytes_;
  std::map<std::string, SafetensorsTensor, std::less<>> tensors_;
};

}  // namespace deepencoder
