#include "tests/encoder/weights/test_files.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "encoder/weights/safetensors.h"

namespace deepencoder {

TemporaryFolder::TemporaryFolder() {
  std::string pattern = (std::filesystem::temp_directory_path() / "deepencoder-XXXXXX").string();
  EXPECT_NE(mkdtemp(pattern.data()), nullptr);
  path_ = pattern;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

void WriteFile(const std::string& path, std::string_view content) {
  std::ofstream file(path, std::ios::binary);
  file.write(content.data(), static_cast<std::streamsize>(content.size()));
  file.close();
  EXPECT_TRUE(file.good()) << path;
}

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file.good()) << path;
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string Safetensors(std::string_view header, std::string_view data) {
  const uint64_t length = header.size();
  std::string file(sizeof(length), '\0');
  std::memcpy(file.data(), &length, sizeof(length));
  return file.append(header).append(data);
}

void WriteZeroSafetensors(const std::string& path, const std::vector<TestTensor>& tensors) {
  std::string header = "{";
  uint64_t offset = 0;
  for (const TestTensor& tensor : tensors) {
    uint64_t end = tensor.dtype == "F32" ? 4 : 2;
    for (const int64_t extent : tensor.shape) end *= static_cast<uint64_t>(extent);
    end += offset;
    if (offset > 0) header += ", ";
    header += "\"" + tensor.name + "\": {\"dtype\": \"" + tensor.dtype +
              "\", \"shape\": " + ShapeText(tensor.shape) + ", \"data_offsets\": [" +
              std::to_string(offset) + ", " + std::to_string(end) + "]}";
    offset = end;
  }
  header += "}";
  WriteFile(path, Safetensors(header, ""));
  std::filesystem::resize_file(path, sizeof(uint64_t) + header.size() + offset);
}

std::vector<TestTensor> TensorsOf(const std::vector<TensorSpec>& layout, const std::string& dtype) {
  std::vector<TestTensor> tensors;
  tensors.reserve(layout.size());
  for (const TensorSpec& spec : layout) tensors.push_back({spec.name, dtype, spec.shape});
  return tensors;
}

std::string ConfigJson(int sam_depth, int clip_layers, std::string_view global_blocks) {
  return R"({
    "model_type": "deepseek_vl_v2",
    "language_config": {"hidden_size": 1280},
    "projector_config": {"input_dim": 2048, "n_embed": 1280, "projector_type": "linear"},
    "vision_config": {"image_size": 1024, "mlp_ratio": 3.7362, "width": {
      "clip-l-14-224": {"heads": 16, "image_size": 224, "layers": )" +
         std::to_string(clip_layers) + R"(, "patch_size": 14, "width": 1024},
      "sam_vit_b": {"downsample_channels": [512, 1024], "global_attn_indexes": )" +
         std::string(global_blocks) + R"(, "heads": 12, "layers": )" + std::to_string(sam_depth) +
         R"(, "width": 768}}}})";
}

}  // namespace deepencoder
