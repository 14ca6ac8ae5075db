// The whole encoder: RGB8 views -> rows of [c*c][1280], c = side / 64.
//
//   pixels -> Sam -> Compressor -> features
//   features -> Clip -> [clip | features] -> projector -> tokens
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "encoder/cpu/arena.h"
#include "encoder/cpu/clip.h"
#include "encoder/cpu/compressor.h"
#include "encoder/cpu/compute.h"
#include "encoder/cpu/linear.h"
#include "encoder/cpu/sam.h"
#include "encoder/cpu/workspace.h"
#include "encoder/weights/checkpoint.h"

namespace deepencoder::cpu {

// Weights, packed. Immutable; used by any number of threads, each with a workspace of its own.
class DeepEncoder {
 public:
  // `checkpoint` is read during the call only. The threads in force (ThreadScope) must number what
  // Encode is called with. Throws dnnl::error and std::bad_alloc.
  DeepEncoder(const Checkpoint& checkpoint, const Compute& compute, std::span<const int> sides);

  // For calls of Encode with `threads` threads in force. Throws std::bad_alloc.
  Workspace NewWorkspace(int threads) const;

  // Encodes views ([side][side][3] each) and hands out the rows of each in order, [c*c][1280],
  // valid during the call. The rows of a view are the same to the bit whatever else is encoded.
  // Throws dnnl::error. Afterwards the workspace holds the stages' results of the last group of
  // kViewsTogether.
  using Sink = std::function<void(size_t view, const float* tokens)>;
  void Encode(int side, std::span<const uint8_t* const> views, Workspace& workspace,
              const Sink& sink) const;

  size_t weight_bytes() const { return arena_.bytes(); }

 private:
  struct Stages {
    explicit Stages(WeightLoader loader, std::span<const int> sides);
    Sam sam;
    Compressor compressor;
    Clip clip;
    Linear projector;
    size_t linear_scratchpad;  // bytes
  };

  void Project(int side, int view, Workspace& workspace) const;

  Compute compute_;
  std::vector<int> sides_;
  Arena arena_;  // of the weights
  Stages stages_;
};

}  // namespace deepencoder::cpu
