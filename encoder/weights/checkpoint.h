// A DeepSeek-OCR checkpoint folder, opened for its vision tensors only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "encoder/base/dtype.h"
#include "encoder/model/config.h"

namespace deepencoder {

// A tensor in a mapped file: row-major, little-endian, `data` valid as long as the Checkpoint.
// It may be unaligned (safetensors aligns only to a byte): read through memcpy or ConvertToFloat.
struct StoredTensor {
  DType dtype;
  std::vector<int64_t> shape;
  const std::byte* data;
  size_t bytes;
  int64_t Count() const;
};

class Checkpoint {
 public:
  // Reads config.json, the index or the single *.safetensors file, and maps the files. Every vision
  // tensor is checked (present, shape, type, extent) before this returns; language tensors are not
  // touched. Errors: NOT_FOUND (no such folder or file), INVALID_ARGUMENT naming file, tensor,
  // expected and found.
  static absl::StatusOr<std::unique_ptr<Checkpoint>> Open(const std::string& folder);
  virtual ~Checkpoint() = default;

  virtual const ModelConfig& config() const = 0;
  virtual const std::map<std::string, StoredTensor, std::less<>>& tensors() const = 0;
  // Must exist in CheckpointLayout(config()).
  const StoredTensor& Get(std::string_view name) const;
  std::vector<float> GetFloats(std::string_view name) const;

  // Hex digest over names, types, shapes and a sample of every used tensor's bytes: tells
  // checkpoints apart, computed in milliseconds.
  virtual const std::string& fingerprint() const = 0;

  // Whether the values are those of a synthetic checkpoint (encoder/weights/synthetic.h), whatever
  // its seed: its embeddings mean nothing.
  virtual bool synthetic() const = 0;

  // Tells the kernel that this tensor's pages are no longer needed (they can be read again): keeps
  // resident memory low while a backend packs its own copy.
  virtual void Release(std::string_view name) const = 0;

  // Errors: FAILED_PRECONDITION if a file was changed since Open, so that what was read may be nonsense.
  virtual absl::Status CheckUnchanged() const = 0;
};

}  // namespace deepencoder
