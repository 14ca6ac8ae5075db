// Reference values of the encoder and what is computed from the same inputs.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "encoder/base/dtype.h"
#include "encoder/cpu/cpu_features.h"
#include "encoder/image/image.h"
#include "encoder/weights/checkpoint.h"

namespace deepencoder {

// tests/data/encoder
std::string ConformanceData();

// A checkpoint of made-up weights in `folder`, written there unless one was before.
std::unique_ptr<Checkpoint> SyntheticCheckpoint(const std::string& folder, int sam_depth,
                                                int clip_layers);
// One of 3 SAM blocks (the third is global) and 2 CLIP layers, made once for each test program.
const Checkpoint& MiniCheckpoint();

// A tensor of a *.safetensors file as floats.
std::vector<float> ReadTensor(const std::string& path, const std::string& name);
bool HasTensor(const std::string& path, const std::string& name);
// What the reference itself is off by in `type`: error_of_reference of `tensor` in an index of
// files.
double ErrorOfReference(const std::string& index, const std::string& file,
                        const std::string& tensor, DType type);

RgbImage ReadImage(const std::string& path);

// |ours - reference| / |reference|, L2.
double RelativeError(std::span<const float> ours, std::span<const float> reference);

// Runs FOLDER/FILE.png through the encoder and holds every tensor of FOLDER/FILE.safetensors to its
// bar.
struct ConformanceCase {
  std::string folder, index, file;
};
void ExpectConformance(const Checkpoint& checkpoint, const ConformanceCase& what, DType type,
                       cpu::Isa isa);

}  // namespace deepencoder
