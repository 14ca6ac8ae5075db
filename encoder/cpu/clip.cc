#include "encoder/cpu/clip.h"

#include <algorithm>
#include <string>

#include "encoder/cpu/attention.h"
#include "encoder/model/config.h"
#include "encoder/model/tables.h"

namespace deepencoder::cpu {
namespace {

int TokensOf(int side) { return OutputGridOf(side) * OutputGridOf(side) + 1; }

}  // namespace

Clip::Clip(WeightLoader& loader, std::span<const int> sides) {
  const std::string prefix = "model.vision_model.";
  std::vector<int> rows;
  for (const int side : sides) rows.push_back(TokensOf(side));

  // Row 0 of the position table is the class token's, the rest is a 16 x 16 grid.
  const std::vector<float> stored = loader.Floats(prefix + "embeddings.position_embedding.weight");
  std::vector<float> class_token = loader.Floats(prefix + "embeddings.class_embedding");
  std::transform(class_token.begin(), class_token.end(), stored.begin(), class_token.begin(),
                 std::plus<>());
  class_token_ = loader.Copy(class_token);
  for (const int side : sides) {
    positions_[side] = loader.RoundedCopy(ResizePositions(
        stored.data() + kClipWidth, kClipStoredGrid, OutputGridOf(side), kClipWidth));
  }
  pre_norm_ = loader.LayerNorm(prefix + "pre_layrnorm");  // spelt so in the checkpoint

  const DType type = loader.compute();
  for (int i = 0; i < loader.config().clip_layers; ++i) {
    const std::string name = prefix + "transformer.layers." + std::to_string(i) + ".";
    Layer layer;
    layer.norm1 = loader.LayerNorm(name + "layer_norm1");
    layer.norm2 = loader.LayerNorm(name + "layer_norm2");
    layer.qkv =
        loader.LinearOf(name + "self_attn.qkv_proj", true,
                        {.depth = kClipWidth, .width = 3 * kClipWidth, .output = type}, rows);
    layer.out = loader.LinearOf(name + "self_attn.out_proj", true,
                                {.depth = kClipWidth,
                                 .width = kClipWidth,
                                 .output = DType::kFp32,
                                 .epilogue = Epilogue::kAdd},
                                rows);
    layer.fc1 = loader.LinearOf(
        name + "mlp.fc1", true,
        {.depth = kClipWidth, .width = kClipMlp, .output = type, .epilogue = Epilogue::kQuickGelu},
        rows);
    layer.fc2 = loader.LinearOf(name + "mlp.fc2", true,
                                {.depth = kClipMlp,
                                 .width = kClipWidth,
                                 .output = DType::kFp32,
                                 .epilogue = Epilogue::kAdd},
                                rows);
    layers_.push_back(std::move(layer));
  }
}

void Clip::Run(const Compute& compute, int side, int views, Workspace& workspace) const {
  const size_t tokens = TokensOf(side);
  const auto x_of = [&](int view) { return workspace.clip + view * tokens * kClipWidth; };
  for (int view = 0; view < views; ++view) {
    Embed(compute, side, workspace.features + view * (tokens - 1) * kClipWidth, x_of(view));
  }
  // Views one by one within a layer: a view's bits must not depend on how many others there are.
  for (const Layer& layer : layers_) {
    for (int view = 0; view < views; ++view) RunLayer(compute, layer, side, x_of(view), workspace);
  }
}

// x = pre_norm([class token; features] + positions)
void Clip::Embed(const Compute& compute, int side, const float* features, float* x) const {
  const int tokens = TokensOf(side);
  std::copy_n(class_token_, kClipWidth, x);
  std::transform(features, features + static_cast<size_t>(tokens - 1) * kClipWidth,
                 positions_.at(side), x + kClipWidth, std::plus<>());
  compute.LayerNorm(x, pre_norm_, kClipEps, kClipWidth, tokens, DType::kFp32, x);
}

// x += out(attention(norm1(x)));  x += fc2(quick_gelu(fc1(norm2(x))))
void Clip::RunLayer(const Compute& compute, const Layer& layer, int side, float* x,
                    Workspace& workspace) const {
  const int tokens = TokensOf(side);
  compute.LayerNorm(x, layer.norm1, kClipEps, kClipWidth, tokens, compute.type, workspace.narrow);
  layer.qkv.Run(workspace.linear, tokens, workspace.narrow, workspace.wide);
  GlobalAttention(*compute.attention, SizeOf(compute.type), ClipShape(OutputGridOf(side)),
                  kClipHeads, workspace.wide, {}, workspace.narrow, workspace);
  layer.out.Run(workspace.linear, tokens, workspace.narrow, x);

  compute.LayerNorm(x, layer.norm2, kClipEps, kClipWidth, tokens, compute.type, workspace.narrow);
  layer.fc1.Run(workspace.linear, tokens, workspace.narrow, workspace.wide);
  layer.fc2.Run(workspace.linear, tokens, workspace.wide, x);
}

}  // namespace deepencoder::cpu
