// Files and folders for the tests of encoder/weights.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "encoder/model/checkpoint_layout.h"

namespace deepencoder {

// A folder of its own, removed at the end.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string File(std::string_view name) const { return path_ + "/" + std::string(name); }

 private:
  std::string path_;
};

void WriteFile(const std::string& path, std::string_view content);
std::string ReadFile(const std::string& path);

// A safetensors file of `header` behind its length, then `data`.
std::string Safetensors(std::string_view header, std::string_view data);

// One tensor of a made file.
struct TestTensor {
  std::string name, dtype;
  std::vector<int64_t> shape;
};

// Writes a safetensors file of these tensors, their values all zero and taking no disk: the file is
// sparse.
void WriteZeroSafetensors(const std::string& path, const std::vector<TestTensor>& tensors);

// The tensors of a layout in one type.
std::vector<TestTensor> TensorsOf(const std::vector<TensorSpec>& layout, const std::string& dtype);

// config.json of a model with these depths.
std::string ConfigJson(int sam_depth, int clip_layers,
                       std::string_view global_blocks = "[2, 5, 8, 11]");

}  // namespace deepencoder
