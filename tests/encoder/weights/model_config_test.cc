#include "encoder/weights/model_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "tests/encoder/weights/test_files.h"

namespace deepencoder {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

absl::StatusOr<ModelConfig> Parse(const std::string& text) {
  const auto json = ParseJson(text, 1 << 20);
  EXPECT_TRUE(json.ok()) << json.status();
  return ParseModelConfig(*json);
}

// The usual configuration with one piece of its text replaced.
absl::StatusOr<ModelConfig> ParseWith(std::string_view from, std::string_view to) {
  std::string text = ConfigJson(12, 24);
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return Parse(text.replace(at, from.size(), to));
}

TEST(ModelConfigTest, DepthsAndGlobalBlocks) {
  const auto full = Parse(ConfigJson(12, 24));
  ASSERT_TRUE(full.ok()) << full.status();
  EXPECT_EQ(full->sam_depth, 12);
  EXPECT_EQ(full->clip_layers, 24);
  EXPECT_THAT(full->global_blocks, ElementsAre(2, 5, 8, 11));

  // Blocks past the depth do not exist; order and repetition do not matter.
  EXPECT_THAT(Parse(ConfigJson(3, 2))->global_blocks, ElementsAre(2));
  EXPECT_THAT(Parse(ConfigJson(12, 2, "[7, 1, 7]"))->global_blocks, ElementsAre(1, 7));
  EXPECT_THAT(Parse(ConfigJson(12, 2, "[]"))->global_blocks, IsEmpty());
}

TEST(ModelConfigTest, NamesTheFieldThatDoesNotFit) {
  const struct {
    std::string_view from, to, field, found;
  } cases[] = {
      {R"("width": 768)", R"("width": 1024)", "vision_config.width.sam_vit_b.width", "found 1024"},
      {R"("heads": 12)", R"("heads": 16)", "vision_config.width.sam_vit_b.heads", "expected 12"},
      {R"("heads": 16)", R"("heads": 8)", "vision_config.width.clip-l-14-224.heads", "found 8"},
      {R"("patch_size": 14)", R"("patch_size": 16)", "clip-l-14-224.patch_size", "expected 14"},
      {R"("image_size": 224)", R"("image_size": 336)", "clip-l-14-224.image_size", "found 336"},
      {R"("image_size": 1024)", R"("image_size": 512)", "vision_config.image_size", "found 512"},
      {R"("input_dim": 2048)", R"("input_dim": 1920)", "projector_config.input_dim", "2048"},
      {R"("n_embed": 1280)", R"("n_embed": 2048)", "projector_config.n_embed", "1280"},
      {R"("linear")", R"("mlp")", "projector_config.projector_type", "\"mlp\""},
      {R"("linear")", "1", "projector_config.projector_type", "a number"},
      {R"([512, 1024])", R"([512, 896])", "sam_vit_b.downsample_channels", "[512, 1024]"},
      {R"("layers": 12)", R"("layers": 0)", "sam_vit_b.layers", "found 0"},
      {R"("layers": 12)", R"("layers": 257)", "sam_vit_b.layers", "to 256"},
      {R"("layers": 24)", R"("layers": 2.5)", "clip-l-14-224.layers", "found 2.5"},
      {R"("layers": 24)", R"("layers": "24")", "clip-l-14-224.layers", "a string"},
      {R"([2, 5, 8, 11])", R"([2, -1])", "sam_vit_b.global_attn_indexes", "found -1"},
      {R"([2, 5, 8, 11])", R"({})", "sam_vit_b.global_attn_indexes", "an object"},
      {R"("sam_vit_b")", R"("sam_vit_l")", "vision_config.width.sam_vit_b", "missing"},
      {R"("projector_config")", R"("projector")", "projector_config", "missing"},
  };
  for (const auto& c : cases) {
    const auto config = ParseWith(c.from, c.to);
    EXPECT_EQ(config.status().code(), absl::StatusCode::kInvalidArgument) << c.to;
    EXPECT_THAT(std::string(config.status().message()),
                AllOf(HasSubstr(std::string(c.field)), HasSubstr(std::string(c.found))));
  }
}

TEST(ModelConfigTest, FileErrorsStartWithThePath) {
  const TemporaryFolder folder;
  const std::string path = folder.File("config.json");
  EXPECT_EQ(ReadModelConfig(path).status().code(), absl::StatusCode::kNotFound);
  WriteFile(path, "{}");
  EXPECT_THAT(std::string(ReadModelConfig(path).status().message()), testing::StartsWith(path));
}

}  // namespace
}  // namespace deepencoder
