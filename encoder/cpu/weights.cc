#include "encoder/cpu/weights.h"

#include <algorithm>

#include "encoder/model/tables.h"

namespace deepencoder::cpu {

std::vector<float> WeightLoader::Floats(const std::string& name) const {
  std::vector<float> values = checkpoint_.GetFloats(name);
  checkpoint_.Release(name);
  return values;
}

const float* WeightLoader::Copy(std::span<const float> values) {
  float* copy = arena_.AllocateArray<float>(values.size());
  std::copy(values.begin(), values.end(), copy);
  return copy;
}

const float* WeightLoader::RoundedCopy(std::span<const float> values) {
  float* copy = arena_.AllocateArray<float>(values.size());
  std::transform(values.begin(), values.end(), copy,
                 [this](float value) { return RoundTo(compute_, value); });
  return copy;
}

const std::byte* WeightLoader::TypedCopy(std::span<const float> values) {
  std::byte* copy = arena_.Allocate(values.size() * SizeOf(compute_));
  Convert(values.data(), compute_, copy, values.size());
  return copy;
}

LayerNormWeights WeightLoader::LayerNorm(const std::string& prefix) {
  return {Copy(Floats(prefix + ".weight")), Copy(Floats(prefix + ".bias"))};
}

Linear WeightLoader::LinearOf(const std::string& prefix, bool bias, LinearSpec spec,
                              std::span<const int> rows) {
  return Pack(spec, rows, Floats(prefix + ".weight"),
              bias ? Floats(prefix + ".bias") : std::vector<float>());
}

Linear WeightLoader::Convolution(const std::string& prefix, bool bias, int in, int kernel,
                                 LinearSpec spec, std::span<const int> rows) {
  const std::vector<float> stored = Floats(prefix + ".weight");
  std::vector<float> weights(stored.size());
  const size_t area = static_cast<size_t>(kernel) * kernel;
  for (size_t out = 0; out < static_cast<size_t>(spec.width); ++out) {
    for (size_t place = 0; place < area; ++place) {
      for (size_t channel = 0; channel < static_cast<size_t>(in); ++channel) {
        weights[(out * area + place) * in + channel] = stored[(out * in + channel) * area + place];
      }
    }
  }
  spec.depth = in * kernel * kernel;
  return Pack(spec, rows, weights, bias ? Floats(prefix + ".bias") : std::vector<float>());
}

RelPosPair WeightLoader::RelPos(const std::string& prefix, int grid) {
  const auto pack = [&](const std::string& name) {
    const std::vector<float> stored = Floats(name);
    const std::vector<float> table = ResizeRelPos(
        stored.data(), static_cast<int>(stored.size()) / kHeadSize, 2 * grid - 1, kHeadSize);
    std::byte* packed = arena_.Allocate(attention_.rel_pos_bytes(grid));
    attention_.pack_rel_pos(table.data(), grid, packed);
    return packed;
  };
  return {pack(prefix + "_h"), pack(prefix + "_w")};
}

Linear WeightLoader::Pack(const LinearSpec& spec, std::span<const int> rows,
                          std::span<const float> weights, std::span<const float> bias) {
  LinearSpec typed = spec;
  typed.input = compute_;
  Linear linear(typed, rows, weights, bias, arena_);
  scratchpad_bytes_ = std::max(scratchpad_bytes_, linear.scratchpad_bytes());
  return linear;
}

}  // namespace deepencoder::cpu
