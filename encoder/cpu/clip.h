// CLIP-L's transformer over SAM's features: [c*c][1024] -> [1 + c*c][1024], class token first.
#pragma once

#include <map>
#include <span>
#include <vector>

#include "encoder/cpu/compute.h"
#include "encoder/cpu/linear.h"
#include "encoder/cpu/weights.h"
#include "encoder/cpu/workspace.h"

namespace deepencoder::cpu {

class Clip {
 public:
  Clip(WeightLoader& loader, std::span<const int> sides);

  // workspace.features -> workspace.clip, for `views` (<= kViewsTogether) views.
  void Run(const Compute& compute, int side, int views, Workspace& workspace) const;

 private:
  struct Layer {
    LayerNormWeights norm1, norm2;
    Linear qkv, out, fc1, fc2;
  };

  void Embed(const Compute& compute, int side, const float* features, float* x) const;
  void RunLayer(const Compute& compute, const Layer& layer, int side, float* x,
                Workspace& workspace) const;

  const float* class_token_;               // [1024], its position added
  std::map<int, const float*> positions_;  // by side: [c*c][1024]
  LayerNormWeights pre_norm_;
  std::vector<Layer> layers_;
};

}  // namespace deepencoder::cpu
