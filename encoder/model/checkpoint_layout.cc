#include "encoder/model/checkpoint_layout.h"

#include <utility>

namespace deepencoder {
namespace {

// Of CLIP's patch convolution, which checkpoints hold and the encoder does not use.
constexpr int64_t kClipPatchSide = 14;  // pixels
constexpr int64_t kColours = 3;

class LayoutBuilder {
 public:
  void Add(std::string name, std::vector<int64_t> shape, bool used = true) {
    specs_.push_back({std::move(name), std::move(shape), used});
  }
  // A weight, and a bias or shift as long as the weight's first axis.
  void AddWithBias(const std::string& name, std::vector<int64_t> shape) {
    const int64_t outputs = shape.front();
    Add(name + ".weight", std::move(shape));
    Add(name + ".bias", {outputs});
  }
  std::vector<TensorSpec> Take() { return std::move(specs_); }

 private:
  std::vector<TensorSpec> specs_;
};

void AddSamBlock(LayoutBuilder& out, const std::string& block, bool global) {
  // Offsets -(g-1) .. g-1 of a g x g grid or window.
  const int64_t offsets = 2 * (global ? kStoredGrid : kWindow) - 1;
  out.AddWithBias(block + "norm1", {kSamWidth});
  out.Add(block + "attn.rel_pos_h", {offsets, kHeadSize});
  out.Add(block + "attn.rel_pos_w", {offsets, kHeadSize});
  out.AddWithBias(block + "attn.qkv", {3 * kSamWidth, kSamWidth});
  out.AddWithBias(block + "attn.proj", {kSamWidth, kSamWidth});
  out.AddWithBias(block + "norm2", {kSamWidth});
  out.AddWithBias(block + "mlp.lin1", {kSamMlp, kSamWidth});
  out.AddWithBias(block + "mlp.lin2", {kSamWidth, kSamMlp});
}

void AddSam(LayoutBuilder& out, const ModelConfig& config) {
  const std::string sam = "model.sam_model.";
  out.Add(sam + "pos_embed", {1, kStoredGrid, kStoredGrid, kSamWidth});
  out.AddWithBias(sam + "patch_embed.proj", {kSamWidth, kColours, kPatchSide, kPatchSide});
  for (int i = 0; i < config.sam_depth; ++i) {
    AddSamBlock(out, sam + "blocks." + std::to_string(i) + ".", config.IsGlobal(i));
  }
  out.Add(sam + "neck.0.weight", {kNeckWidth, kSamWidth, 1, 1});
  out.AddWithBias(sam + "neck.1", {kNeckWidth});
  out.Add(sam + "neck.2.weight", {kNeckWidth, kNeckWidth, 3, 3});
  out.AddWithBias(sam + "neck.3", {kNeckWidth});
  out.Add(sam + "net_2.weight", {kNet2Width, kNeckWidth, 3, 3});
  out.Add(sam + "net_3.weight", {kNet3Width, kNet2Width, 3, 3});
}

void AddClipLayer(LayoutBuilder& out, const std::string& layer) {
  out.AddWithBias(layer + "layer_norm1", {kClipWidth});
  out.AddWithBias(layer + "self_attn.qkv_proj", {3 * kClipWidth, kClipWidth});
  out.AddWithBias(layer + "self_attn.out_proj", {kClipWidth, kClipWidth});
  out.AddWithBias(layer + "layer_norm2", {kClipWidth});
  out.AddWithBias(layer + "mlp.fc1", {kClipMlp, kClipWidth});
  out.AddWithBias(layer + "mlp.fc2", {kClipWidth, kClipMlp});
}

void AddClip(LayoutBuilder& out, const ModelConfig& config) {
  const std::string clip = "model.vision_model.";
  const int64_t positions = kClipStoredGrid * kClipStoredGrid + 1;  // and the class token
  out.Add(clip + "embeddings.class_embedding", {kClipWidth});
  out.Add(clip + "embeddings.patch_embedding.weight",
          {kClipWidth, kColours, kClipPatchSide, kClipPatchSide}, /*used=*/false);
  out.Add(clip + "embeddings.position_embedding.weight", {positions, kClipWidth});
  out.AddWithBias(clip + "pre_layrnorm", {kClipWidth});  // spelt so in checkpoints
  for (int i = 0; i < config.clip_layers; ++i) {
    AddClipLayer(out, clip + "transformer.layers." + std::to_string(i) + ".");
  }
}

}  // namespace

int64_t TensorSpec::Count() const {
  int64_t count = 1;
  for (const int64_t extent : shape) count *= extent;
  return count;
}

std::vector<TensorSpec> CheckpointLayout(const ModelConfig& config) {
  LayoutBuilder out;
  AddSam(out, config);
  AddClip(out, config);
  out.AddWithBias("model.projector.layers", {kEmbeddingWidth, kClipWidth + kNet3Width});
  out.Add("model.image_newline", {kEmbeddingWidth});
  out.Add("model.view_seperator", {kEmbeddingWidth});  // spelt so in checkpoints
  return out.Take();
}

}  // namespace deepencoder
