#include "encoder/cpu/sam.h"

#include <cstring>
#include <string>

#include "encoder/cpu/attention.h"
#include "encoder/cpu/parallel.h"
#include "encoder/model/config.h"
#include "encoder/model/tables.h"

namespace deepencoder::cpu {
namespace {

constexpr int kChannels = 3;
constexpr int kPatchValues = kPatchSide * kPatchSide * kChannels;

// A patch in the order [ky][kx][channel] is 16 runs of 48 bytes of the picture. T holds one
// element.
template <class T>
void GatherPatches(int side, const uint8_t* rgb, const T* pixel_values, T* patches) {
  const int grid = GridOf(side);
  ParallelFor(grid, [&](int row, int) {
    for (int column = 0; column < grid; ++column) {
      T* patch = patches + (static_cast<size_t>(row) * grid + column) * kPatchValues;
      for (int y = 0; y < kPatchSide; ++y) {
        const size_t pixel = static_cast<size_t>(row * kPatchSide + y) * side + column * kPatchSide;
        const uint8_t* from = rgb + pixel * kChannels;
        for (int i = 0; i < kPatchSide * kChannels; ++i) *patch++ = pixel_values[from[i]];
      }
    }
  });
}

std::vector<float> NormalisedValues() {
  std::vector<float> values(256);
  for (int v = 0; v < 256; ++v) values[v] = (static_cast<float>(v) / 255.0f - 0.5f) / 0.5f;
  return values;
}

}  // namespace

Sam::Sam(WeightLoader& loader, std::span<const int> sides)
    : pixel_values_(loader.TypedCopy(NormalisedValues())) {
  const std::string prefix = "model.sam_model.";
  std::vector<int> rows;
  for (const int side : sides) rows.push_back(GridOf(side) * GridOf(side));

  patch_embed_ = loader.Convolution(
      prefix + "patch_embed.proj", true, kChannels, kPatchSide,
      {.width = kSamWidth, .output = DType::kFp32, .epilogue = Epilogue::kAdd}, rows);
  const std::vector<float> stored = loader.Floats(prefix + "pos_embed");
  for (const int side : sides) {
    positions_[side] =
        loader.RoundedCopy(ResizePositions(stored.data(), kStoredGrid, GridOf(side), kSamWidth));
  }

  const DType type = loader.compute();
  for (int i = 0; i < loader.config().sam_depth; ++i) {
    const std::string name = prefix + "blocks." + std::to_string(i) + ".";
    Block block;
    block.global = loader.config().IsGlobal(i);
    block.norm1 = loader.LayerNorm(name + "norm1");
    block.norm2 = loader.LayerNorm(name + "norm2");
    block.qkv = loader.LinearOf(name + "attn.qkv", true,
                                {.depth = kSamWidth, .width = 3 * kSamWidth, .output = type}, rows);
    block.qkv_bias = loader.TypedCopy(loader.Floats(name + "attn.qkv.bias"));
    block.proj = loader.LinearOf(name + "attn.proj", true,
                                 {.depth = kSamWidth,
                                  .width = kSamWidth,
                                  .output = DType::kFp32,
                                  .epilogue = Epilogue::kAdd},
                                 rows);
    block.lin1 = loader.LinearOf(
        name + "mlp.lin1", true,
        {.depth = kSamWidth, .width = kSamMlp, .output = type, .epilogue = Epilogue::kGelu}, rows);
    block.lin2 = loader.LinearOf(
        name + "mlp.lin2", true,
        {.depth = kSamMlp, .width = kSamWidth, .output = DType::kFp32, .epilogue = Epilogue::kAdd},
        rows);
    RelPosPair window = {};
    if (!block.global) window = loader.RelPos(name + "attn.rel_pos", kWindow);
    for (const int side : sides) {
      block.tables[side] =
          block.global ? loader.RelPos(name + "attn.rel_pos", GridOf(side)) : window;
    }
    blocks_.push_back(std::move(block));
  }
}

void Sam::Run(const Compute& compute, int side, const uint8_t* rgb, Workspace& workspace) const {
  EmbedPatches(compute, side, rgb, workspace);
  for (const Block& block : blocks_) RunBlock(compute, block, side, workspace);
}

// x = positions + patches W^T + bias
void Sam::EmbedPatches(const Compute& compute, int side, const uint8_t* rgb,
                       Workspace& workspace) const {
  const int tokens = GridOf(side) * GridOf(side);
  if (compute.type == DType::kBf16) {
    GatherPatches(side, rgb, reinterpret_cast<const uint16_t*>(pixel_values_),
                  reinterpret_cast<uint16_t*>(workspace.wide));
  } else {
    GatherPatches(side, rgb, reinterpret_cast<const float*>(pixel_values_),
                  reinterpret_cast<float*>(workspace.wide));
  }
  const float* positions = positions_.at(side);
  ParallelRows(tokens, 64, [&](int first, int count) {
    const size_t start = static_cast<size_t>(first) * kSamWidth;
    std::memcpy(workspace.residual + start, positions + start,
                static_cast<size_t>(count) * kSamWidth * 4);
  });
  patch_embed_.Run(workspace.linear, tokens, workspace.wide, workspace.residual);
}

// x += proj(attention(norm1(x)));  x += lin2(gelu(lin1(norm2(x))))
void Sam::RunBlock(const Compute& compute, const Block& block, int side,
                   Workspace& workspace) const {
  const int grid = GridOf(side), tokens = grid * grid;
  const size_t element = SizeOf(compute.type);
  float* x = workspace.residual;

  compute.LayerNorm(x, block.norm1, kSamEps, kSamWidth, tokens, compute.type, workspace.narrow);
  block.qkv.Run(workspace.linear, tokens, workspace.narrow, workspace.wide);
  const RelPosPair& tables = block.tables.at(side);
  if (block.global) {
    GlobalAttention(*compute.attention, element, SamGlobalShape(grid), kSamHeads, workspace.wide,
                    tables, workspace.narrow, workspace);
  } else {
    WindowAttention(*compute.attention, element, grid, workspace.wide, block.qkv_bias, tables,
                    workspace.narrow, workspace);
  }
  block.proj.Run(workspace.linear, tokens, workspace.narrow, x);

  compute.LayerNorm(x, block.norm2, kSamEps, kSamWidth, tokens, compute.type, workspace.narrow);
  block.lin1.Run(workspace.linear, tokens, workspace.narrow, workspace.wide);
  block.lin2.Run(workspace.linear, tokens, workspace.wide, x);
}

}  // namespace deepencoder::cpu
