// From a checkpoint's tensors to what the stages compute with.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "encoder/base/dtype.h"
#include "encoder/cpu/arena.h"
#include "encoder/cpu/kernels.h"
#include "encoder/cpu/linear.h"
#include "encoder/weights/checkpoint.h"

namespace deepencoder::cpu {

struct LayerNormWeights {
  const float* weight = nullptr;  // in the arena
  const float* bias = nullptr;
};

// Reads each tensor once, packs it and tells the checkpoint to let go of its pages, so that a model
// in memory is never there twice. Lives during loading only. Methods throw dnnl::error and
// std::bad_alloc.
class WeightLoader {
 public:
  // `compute` is the type of products. The others outlive the loader.
  WeightLoader(const Checkpoint& checkpoint, DType compute, const AttentionKernel& attention,
               Arena& arena)
      : checkpoint_(checkpoint), compute_(compute), attention_(attention), arena_(arena) {}

  const ModelConfig& config() const { return checkpoint_.config(); }
  DType compute() const { return compute_; }
  const AttentionKernel& attention() const { return attention_; }

  std::vector<float> Floats(const std::string& name) const;
  // A copy in the arena, as floats; rounded to the compute type for RoundedCopy.
  const float* Copy(std::span<const float> values);
  const float* RoundedCopy(std::span<const float> values);
  // A copy in the arena in the compute type.
  const std::byte* TypedCopy(std::span<const float> values);

  // `prefix`.weight and `prefix`.bias
  LayerNormWeights LayerNorm(const std::string& prefix);
  // `prefix`.weight and, if `bias`, `prefix`.bias; `rows` as for Linear. The spec's input is set
  // here.
  Linear LinearOf(const std::string& prefix, bool bias, LinearSpec spec, std::span<const int> rows);
  // A convolution [out][in][k][k] as a product over patches in the order [ky][kx][in].
  Linear Convolution(const std::string& prefix, bool bias, int in, int kernel, LinearSpec spec,
                     std::span<const int> rows);
  // The tables prefix_h and prefix_w, resized to `grid` and packed.
  RelPosPair RelPos(const std::string& prefix, int grid);

  // Of the largest product made so far.
  size_t scratchpad_bytes() const { return scratchpad_bytes_; }

 private:
  Linear Pack(const LinearSpec& spec, std::span<const int> rows, std::span<const float> weights,
              std::span<const float> bias);

  const Checkpoint& checkpoint_;
  DType compute_;
  const AttentionKernel& attention_;
  Arena& arena_;
  size_t scratchpad_bytes_ = 0;
};

}  // namespace deepencoder::cpu
