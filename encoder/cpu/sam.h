// SAM ViT-B's image encoder without its neck: pixels -> tokens [grid*grid][768].
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "encoder/cpu/compute.h"
#include "encoder/cpu/linear.h"
#include "encoder/cpu/weights.h"
#include "encoder/cpu/workspace.h"

namespace deepencoder::cpu {

class Sam {
 public:
  // Position tables are resized here, once for each of `sides`.
  Sam(WeightLoader& loader, std::span<const int> sides);

  // `rgb` is [side][side][3]; the tokens are left in workspace.residual.
  void Run(const Compute& compute, int side, const uint8_t* rgb, Workspace& workspace) const;

 private:
  struct Block {
    bool global;
    LayerNormWeights norm1, norm2;
    Linear qkv, proj, lin1, lin2;
    const std::byte* qkv_bias;         // q, k and v of a padded position
    std::map<int, RelPosPair> tables;  // by side; the same for all sides in a window block
  };

  void EmbedPatches(const Compute& compute, int side, const uint8_t* rgb,
                    Workspace& workspace) const;
  void RunBlock(const Compute& compute, const Block& block, int side, Workspace& workspace) const;

  const std::byte* pixel_values_;  // [256] normalised, of the compute type
  Linear patch_embed_;
  std::map<int, const float*> positions_;  // by side: [grid*grid][768]
  std::vector<Block> blocks_;
};

}  // namespace deepencoder::cpu
