// What a DeepEncoder is made of, as plain data. Standard library only: the CUDA backend shares it.
//
// Only depths and the places of the global-attention blocks vary (config.json); everything else is
// written nowhere in a checkpoint, so it is fixed here and verified against the tensors' shapes.
#pragma once

#include <vector>

namespace deepencoder {

// SAM ViT-B
inline constexpr int kPatchSide = 16;  // pixels
inline constexpr int kSamWidth = 768, kSamHeads = 12, kSamMlp = 3072;
inline constexpr int kWindow = 14;       // tokens a side of window attention
inline constexpr int kStoredGrid = 64;   // grid the stored position tables belong to
inline constexpr float kSamEps = 1e-6f;  // of LayerNorm and LayerNorm2d
inline constexpr int kNeckWidth = 256, kNet2Width = 512, kNet3Width = 1024;
// CLIP-L
inline constexpr int kClipWidth = 1024, kClipHeads = 16, kClipMlp = 4096;
inline constexpr int kClipStoredGrid = 16;  // its 257-row position table: class token, then 16 x 16
inline constexpr float kClipEps = 1e-5f;
// both
inline constexpr int kHeadSize = 64;
inline constexpr int kEmbeddingWidth = 1280;  // of a row of the reply

struct ModelConfig {
  int sam_depth = 12;
  int clip_layers = 24;
  // SAM blocks with global attention, ascending; the others attend in windows.
  std::vector<int> global_blocks = {2, 5, 8, 11};

  bool IsGlobal(int block) const;
};

// Sides (pixels) a view can have, ascending. 768 belongs to DeepEncoder V2's tiles; kernels cover its
// grid, no mode uses it yet.
inline constexpr int kViewSides[] = {512, 640, 768, 1024, 1280};
bool IsViewSide(int side);
constexpr int GridOf(int side) { return side / kPatchSide; }            // SAM tokens a side
constexpr int OutputGridOf(int side) { return side / kPatchSide / 4; }  // output rows a side

}  // namespace deepencoder
