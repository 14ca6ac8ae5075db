#include "encoder/cpu/workspace.h"

#include <algorithm>

#include "encoder/cpu/attention.h"
#include "encoder/model/config.h"

namespace deepencoder::cpu {

Workspace::Workspace(const Compute& compute, std::span<const int> sides, int threads,
                     size_t linear_scratchpad) {
  size_t tokens_max = 0, output_max = 0, packed_max = 0;
  scratch_bytes_ = WindowScratchBytes(*compute.attention);
  for (const int side : sides) {
    const int grid = GridOf(side);
    const size_t tokens_here = static_cast<size_t>(grid) * grid;
    const AttentionShape sam = SamGlobalShape(grid);
    const AttentionShape clip_shape = ClipShape(OutputGridOf(side));
    tokens_max = std::max(tokens_max, tokens_here);
    output_max = std::max(output_max, tokens_here / 16);
    packed_max = std::max({packed_max, compute.attention->packed_bytes(sam) * kSamHeads,
                           compute.attention->packed_bytes(clip_shape) * kClipHeads});
    scratch_bytes_ = std::max({scratch_bytes_, compute.attention->scratch_bytes(sam),
                               compute.attention->scratch_bytes(clip_shape)});
  }
  const size_t element = SizeOf(compute.type);
  // CLIP's rows are fewer, but wider: its hidden layer is (c*c + 1) * 4096, far below N * 3072.
  residual = arena.AllocateArray<float>(tokens_max * kSamWidth);
  narrow = arena.Allocate(tokens_max * kSamWidth * element);
  wide = arena.Allocate(tokens_max * kSamMlp * element);
  packed = arena.Allocate(packed_max);
  rows = arena.AllocateArray<const void*>(tokens_max);
  features = arena.AllocateArray<float>(kViewsTogether * output_max * kNet3Width);
  clip = arena.AllocateArray<float>(kViewsTogether * (output_max + 1) * kClipWidth);
  tokens = arena.AllocateArray<float>(output_max * kEmbeddingWidth);
  scratch_bytes_ = (scratch_bytes_ + 63) / 64 * 64;
  scratch_ = arena.Allocate(scratch_bytes_ * threads);
  linear = {dnnl::stream(CpuEngine()), arena.Allocate(linear_scratchpad)};
}

}  // namespace deepencoder::cpu
