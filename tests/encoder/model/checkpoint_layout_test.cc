#include "encoder/model/checkpoint_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <string_view>

namespace deepencoder {
namespace {

using testing::ElementsAre;

std::map<std::string, TensorSpec> ByName(const ModelConfig& config) {
  std::map<std::string, TensorSpec> specs;
  for (TensorSpec& spec : CheckpointLayout(config)) {
    std::string name = spec.name;
    EXPECT_TRUE(specs.emplace(std::move(name), std::move(spec)).second) << "twice";
  }
  return specs;
}

int64_t CountUnder(const std::map<std::string, TensorSpec>& specs, std::string_view prefix,
                   int* tensors) {
  int64_t count = 0;
  *tensors = 0;
  for (const auto& [name, spec] : specs) {
    if (!name.starts_with(prefix)) continue;
    ++*tensors;
    count += spec.Count();
  }
  return count;
}

// The numbers of DeepSeek-OCR's published checkpoint.
TEST(CheckpointLayoutTest, FullModel) {
  const auto specs = ByName(ModelConfig{});
  int tensors = 0;
  EXPECT_EQ(CountUnder(specs, "", &tensors), 401'372'160);
  EXPECT_EQ(tensors, 476);
  EXPECT_EQ(CountUnder(specs, "model.sam_model.", &tensors), 95'569'152);
  EXPECT_EQ(tensors, 179);
  EXPECT_EQ(CountUnder(specs, "model.vision_model.", &tensors), 302'575'616 + 602'112);
  EXPECT_EQ(tensors, 293);
  EXPECT_EQ(CountUnder(specs, "model.projector.", &tensors), 2'622'720);

  EXPECT_THAT(specs.at("model.sam_model.blocks.1.attn.rel_pos_h").shape, ElementsAre(27, 64));
  EXPECT_THAT(specs.at("model.sam_model.blocks.2.attn.rel_pos_w").shape, ElementsAre(127, 64));
  EXPECT_THAT(specs.at("model.vision_model.embeddings.position_embedding.weight").shape,
              ElementsAre(257, 1024));
  EXPECT_THAT(specs.at("model.view_seperator").shape, ElementsAre(1280));
}

TEST(CheckpointLayoutTest, OnlyThePatchConvolutionOfClipIsUnused) {
  std::set<std::string> unused;
  for (const auto& [name, spec] : ByName(ModelConfig{})) {
    if (!spec.used) unused.insert(name);
  }
  EXPECT_THAT(unused, ElementsAre("model.vision_model.embeddings.patch_embedding.weight"));
}

TEST(CheckpointLayoutTest, DepthsAndGlobalBlocksFollowTheConfiguration) {
  const auto specs = ByName({.sam_depth = 3, .clip_layers = 2, .global_blocks = {0}});
  EXPECT_EQ(specs.size(), 476u - 9 * 14 - 22 * 12);
  EXPECT_TRUE(specs.contains("model.sam_model.blocks.2.norm1.weight"));
  EXPECT_FALSE(specs.contains("model.sam_model.blocks.3.norm1.weight"));
  EXPECT_THAT(specs.at("model.sam_model.blocks.0.attn.rel_pos_h").shape, ElementsAre(127, 64));
  EXPECT_THAT(specs.at("model.sam_model.blocks.2.attn.rel_pos_h").shape, ElementsAre(27, 64));
}

}  // namespace
}  // namespace deepencoder
