// Synthetic checkpoints: the tensors of DeepSeek-OCR with made-up values, to run and test the
// encoder without its weights. The embeddings mean nothing.
//
// Every value is a pure function of the tensor's name, the seed and the element's index, so other
// programs can make the same files. Element i (row-major, from 0) of tensor `name`:
//   h = FNV-1a-64 of "<seed>:<name>"
//   x = output number i of the splitmix64 stream whose state starts at h
//   u = (x >> 40) / 2^24                             in [0, 1), exact in float
//   w = centre + (2u - 1) * half_width               in float, each operation rounded
// stored as bfloat16, rounded to nearest even; centre and half_width depend on the kind of tensor.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "encoder/model/checkpoint_layout.h"
#include "encoder/weights/checkpoint.h"

namespace deepencoder {

struct SyntheticOptions {
  int64_t seed = 0;
  int sam_depth = 12;  // 1 .. kMaxDepth
  int clip_layers = 24;
  int threads = 0;  // 0: all cores
};

// Writes model-00001-of-000001.safetensors (BF16), its index and config.json into `folder`, which
// is made if need be; files there appear complete or not at all. Errors: INVALID_ARGUMENT (a
// depth), RESOURCE_EXHAUSTED (the disk is full), and those of AtomicFile.
absl::Status WriteSyntheticCheckpoint(const std::string& folder, const SyntheticOptions& options);

// The distribution of a tensor's values: uniform in [centre - half_width, centre + half_width).
struct Spread {
  float centre, half_width;
};
Spread SpreadOf(const TensorSpec& spec);

// Elements [first, first + out.size()) of a tensor, as bfloat16.
void SyntheticValues(const TensorSpec& spec, int64_t seed, int64_t first, std::span<uint16_t> out);

// Whether the values of a few tensors fill just the ranges that SpreadOf gives them, which trained
// weights do not. True for any seed and for files converted to other types.
bool LooksSynthetic(const Checkpoint& checkpoint);

}  // namespace deepencoder
