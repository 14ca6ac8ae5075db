// The tensors a DeepSeek-OCR checkpoint must hold for the vision encoder: names and shapes as a
// function of the configuration. The loader checks files against it, the synthesiser writes it, in
// this order.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "encoder/model/config.h"

namespace deepencoder {

struct TensorSpec {
  std::string name;
  std::vector<int64_t> shape;
  bool used = true;  // false: present in checkpoints, never read (CLIP's patch convolution)

  int64_t Count() const;
};

std::vector<TensorSpec> CheckpointLayout(const ModelConfig& config);

}  // namespace deepencoder
