// A safetensors file.
#include <numeric>

#include "encoder/weights/safetensors.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/scratch_folder.h"

namespace deepencoder::fuzz {

void TryInput(const uint8_t* data, size_t size) {
  static const ScratchFolder folder;
  const std::string path = folder.Write("model.safetensors", AsText(data, size), size);
  const auto file = SafetensorsFile::Open(path);
  if (!file.ok()) {
    RequireRefusal(file.status());
    Require(std::string(file.status().message()).starts_with(path), "an error names the file");
    return;
  }
  for (const auto& [name, tensor] : (*file)->tensors()) {
    // Every byte can be read: what lies outside the mapping would end the process.
    Require(std::accumulate(tensor.data, tensor.data + tensor.bytes, 0u,
                            [](unsigned sum, std::byte byte) {
                              return sum | std::to_integer<unsigned>(byte);
                            }) <= 0xFF,
            "bytes are bytes");
    (*file)->Release(tensor);
  }
}

}  // namespace deepencoder::fuzz
