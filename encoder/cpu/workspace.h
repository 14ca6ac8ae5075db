// A slot's activations: one arena, laid out once, every buffer reused by each block of each stage.
#pragma once

#include <cstddef>
#include <span>

#include "encoder/cpu/arena.h"
#include "encoder/cpu/compute.h"
#include "encoder/cpu/linear.h"

namespace deepencoder::cpu {

// Views that pass through CLIP together, layer by layer, so that a layer's weights are read once
// for all of them; each costs 2 x 1.6 MiB at 1280.
inline constexpr int kViewsTogether = 8;

struct Workspace {
  // For the largest of `sides`; `threads` is the number the slot computes with.
  Workspace(const Compute& compute, std::span<const int> sides, int threads,
            size_t linear_scratchpad);

  Arena arena;
  LinearRunner linear;

  // SAM, one view at a time; N = grid * grid tokens.
  float* residual;    // [N][768]
  std::byte* narrow;  // [N][768] of the compute type: normed tokens, attention's result
  std::byte*
      wide;  // [N][3072] of the compute type: patches, qkv, hidden layer, convolution patches
  std::byte* packed;  // keys and values of every head, packed
  const void** rows;  // [N]

  // CLIP, kViewsTogether views; c * c output tokens.
  float* features;  // [views][c*c][1024]: what SAM and the compressor made
  float* clip;      // [views][c*c + 1][1024]: residual stream
  float* tokens;    // [c*c][1280]: the projector's result

  // Of one thread, for attention.
  std::byte* thread_scratch(int thread) const { return scratch_ + thread * scratch_bytes_; }

 private:
  std::byte* scratch_;
  size_t scratch_bytes_;
};

}  // namespace deepencoder::cpu
