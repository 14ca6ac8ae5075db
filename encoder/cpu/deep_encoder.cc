#include "encoder/cpu/deep_encoder.h"

#include <algorithm>

#include "encoder/cpu/parallel.h"
#include "encoder/model/config.h"

namespace deepencoder::cpu {
namespace {

int OutputTokens(int side) { return OutputGridOf(side) * OutputGridOf(side); }

std::vector<int> ProjectorRows(std::span<const int> sides) {
  std::vector<int> rows;
  for (const int side : sides) rows.push_back(OutputTokens(side));
  return rows;
}

}  // namespace

DeepEncoder::Stages::Stages(WeightLoader loader, std::span<const int> sides)
    : sam(loader, sides),
      compressor(loader, sides),
      clip(loader, sides),
      projector(loader.LinearOf(
          "model.projector.layers", true,
          {.depth = kClipWidth + kNet3Width, .width = kEmbeddingWidth, .output = DType::kFp32},
          ProjectorRows(sides))),
      linear_scratchpad(loader.scratchpad_bytes()) {}

DeepEncoder::DeepEncoder(const Checkpoint& checkpoint, const Compute& compute,
                         std::span<const int> sides)
    : compute_(compute),
      sides_(sides.begin(), sides.end()),
      stages_(WeightLoader(checkpoint, compute.type, *compute.attention, arena_), sides) {}

Workspace DeepEncoder::NewWorkspace(int threads) const {
  return Workspace(compute_, sides_, threads, stages_.linear_scratchpad);
}

void DeepEncoder::Encode(int side, std::span<const uint8_t* const> views, Workspace& workspace,
                         const Sink& sink) const {
  const size_t feature_values = static_cast<size_t>(OutputTokens(side)) * kNet3Width;
  for (size_t first = 0; first < views.size(); first += kViewsTogether) {
    const int together = static_cast<int>(std::min<size_t>(kViewsTogether, views.size() - first));
    for (int view = 0; view < together; ++view) {
      stages_.sam.Run(compute_, side, views[first + view], workspace);
      stages_.compressor.Run(compute_, side, workspace.features + view * feature_values, workspace);
    }
    stages_.clip.Run(compute_, side, together, workspace);
    for (int view = 0; view < together; ++view) {
      Project(side, view, workspace);
      sink(first + view, workspace.tokens);
    }
  }
}

// workspace.tokens = [clip | features] W^T + bias; CLIP's class token is dropped.
void DeepEncoder::Project(int side, int view, Workspace& workspace) const {
  const int tokens = OutputTokens(side);
  const float* clip = workspace.clip + (static_cast<size_t>(view) * (tokens + 1) + 1) * kClipWidth;
  const float* features = workspace.features + static_cast<size_t>(view) * tokens * kNet3Width;
  const size_t half = kClipWidth * SizeOf(compute_.type);
  static_assert(kClipWidth == kNet3Width);
  ParallelFor(tokens, [&](int token, int) {
    std::byte* to = workspace.wide + token * 2 * half;
    Convert(clip + static_cast<size_t>(token) * kClipWidth, compute_.type, to, kClipWidth);
    Convert(features + static_cast<size_t>(token) * kNet3Width, compute_.type, to + half,
            kNet3Width);
  });
  stages_.projector.Run(workspace.linear, tokens, workspace.wide, workspace.tokens);
}

}  // namespace deepencoder::cpu
