// SAM's neck and the two strided convolutions after it: tokens [grid*grid][768] -> [c*c][1024], c =
// grid/4.
#pragma once

#include <span>

#include "encoder/cpu/compute.h"
#include "encoder/cpu/linear.h"
#include "encoder/cpu/weights.h"
#include "encoder/cpu/workspace.h"

namespace deepencoder::cpu {

class Compressor {
 public:
  Compressor(WeightLoader& loader, std::span<const int> sides);

  // Reads workspace.residual and destroys it; `features` is [c*c][1024].
  void Run(const Compute& compute, int side, float* features, Workspace& workspace) const;

 private:
  Linear neck0_, neck2_, net2_, net3_;
  LayerNormWeights neck1_, neck3_;
};

}  // namespace deepencoder::cpu
