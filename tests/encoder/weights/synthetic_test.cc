#include "encoder/weights/synthetic.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "encoder/weights/fnv1a.h"
#include "encoder/weights/model_config.h"
#include "tests/encoder/weights/test_files.h"

namespace deepencoder {
namespace {

uint64_t HashOfFile(const std::string& path) {
  Fnv1a64 hash;
  hash.Add(ReadFile(path));
  return hash.value();
}

TensorSpec Spec(const std::string& name) {
  for (TensorSpec& spec : CheckpointLayout(ModelConfig{})) {
    if (spec.name == name) return spec;
  }
  ADD_FAILURE() << name;
  return {};
}

// First four values, made by the published Python generator.
TEST(SyntheticTest, ValuesOfThePythonGenerator) {
  const struct {
    const char* name;
    int64_t seed;
    std::vector<uint16_t> first;
  } cases[] = {
      {"model.image_newline", 0, {0x3e58, 0xbf52, 0xbf0f, 0x3e2f}},
      {"model.image_newline", -5, {0xbf2f, 0xbe38, 0xbe71, 0xbd67}},
      {"model.sam_model.blocks.0.attn.qkv.weight", 0, {0xbb64, 0xbcbc, 0x3d94, 0xbd45}},
      {"model.sam_model.neck.1.weight", 0, {0x3f9f, 0x3f53, 0x3f6c, 0x3f61}},
      {"model.sam_model.blocks.2.mlp.lin2.weight", -5, {0xbc70, 0xbc23, 0x3c5e, 0x3bbc}},
  };
  for (const auto& c : cases) {
    std::vector<uint16_t> values(4);
    SyntheticValues(Spec(c.name), c.seed, 0, values);
    EXPECT_EQ(values, c.first) << c.name << ", seed " << c.seed;
  }
}

TEST(SyntheticTest, ValuesDoNotDependOnWhereAPieceBegins) {
  const TensorSpec spec = Spec("model.projector.layers.bias");
  std::vector<uint16_t> whole(1280), piece(100);
  SyntheticValues(spec, 1, 0, whole);
  SyntheticValues(spec, 1, 700, piece);
  EXPECT_EQ(piece, std::vector<uint16_t>(whole.begin() + 700, whole.begin() + 800));
}

// FNV-1a-64 of the three files that the Python generator writes with --sam-depth 3 --clip-layers 2.
TEST(SyntheticTest, FilesOfThePythonGenerator) {
  const TemporaryFolder folder;
  const std::string path = folder.File("made/on/the/way");
  SyntheticOptions options{.sam_depth = 3, .clip_layers = 2, .threads = 3};
  ASSERT_TRUE(WriteSyntheticCheckpoint(path, options).ok());
  EXPECT_EQ(HashOfFile(path + "/config.json"), 0x3f3e4345f6eb09f4u);
  EXPECT_EQ(HashOfFile(path + "/model.safetensors.index.json"), 0x79b0797f5911fbabu);
  EXPECT_EQ(HashOfFile(path + "/model-00001-of-000001.safetensors"), 0x1b1d5c1d2275b3bdu);

  // Again, over the files that are there, with another seed.
  options.seed = 7;
  ASSERT_TRUE(WriteSyntheticCheckpoint(path, options).ok());
  EXPECT_EQ(HashOfFile(path + "/model-00001-of-000001.safetensors"), 0x9af864808dc82b71u);
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(path))
    files += entry.exists() ? 1 : 0;
  EXPECT_EQ(files, 3);
}

TEST(SyntheticTest, RefusesDepthsAndFoldersThatCannotBe) {
  const TemporaryFolder folder;
  for (const int depth : {0, -1, kMaxDepth + 1}) {
    EXPECT_EQ(WriteSyntheticCheckpoint(folder.path(), {.sam_depth = depth}).code(),
              absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(WriteSyntheticCheckpoint(folder.path(), {.clip_layers = depth}).code(),
              absl::StatusCode::kInvalidArgument);
  }
  WriteFile(folder.File("file"), "");
  EXPECT_FALSE(WriteSyntheticCheckpoint(folder.File("file"), {}).ok());
  EXPECT_FALSE(WriteSyntheticCheckpoint(folder.File("file/below"), {}).ok());
}

}  // namespace
}  // namespace deepencoder
