// Embeddings as files: NumPy's .npy and safetensors.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "client/client.h"

namespace deepencoder::client {

struct NamedTensor {
  std::string name;
  const Embeddings* embeddings;
};

// Writes one array. Errors: INVALID_ARGUMENT (bf16, which the format does not have), AtomicFile's.
absl::Status WriteNpy(const std::string& path, const Embeddings& embeddings);

// Writes tensors of any type under their names, which must differ. Errors: AtomicFile's.
absl::Status WriteSafetensors(const std::string& path, const std::vector<NamedTensor>& tensors);

// `text` as a JSON string, quotes included. Bytes that are not ASCII pass as they are.
std::string JsonString(const std::string& text);

}  // namespace deepencoder::client
