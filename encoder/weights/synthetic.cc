#include "encoder/weights/synthetic.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <memory>
#include <mutex>
#include <numbers>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "encoder/base/dtype.h"
#include "encoder/weights/atomic_file.h"
#include "encoder/weights/checkpoint_files.h"
#include "encoder/weights/fnv1a.h"
#include "encoder/weights/model_config.h"

namespace deepencoder {
namespace {

constexpr std::string_view kWeightsFile = "model-00001-of-000001.safetensors";
constexpr int64_t kChunk = int64_t{1} << 20;  // elements that a thread makes and writes at a time

bool Contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

uint64_t SplitMix64(uint64_t state) {
  uint64_t z = state;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

uint64_t StreamOf(std::string_view name, int64_t seed) {
  Fnv1a64 hash;
  hash.Add(std::to_string(seed));
  hash.Add(":");
  hash.Add(name);
  return hash.value();
}

// JSON as Python's json.dumps writes it: ", " and ": ".
std::string WeightsHeader(const std::vector<TensorSpec>& layout, uint64_t* data_bytes) {
  std::string text = R"({"__metadata__": {"format": "pt"})";
  uint64_t offset = 0;
  for (const TensorSpec& spec : layout) {
    const uint64_t end = offset + static_cast<uint64_t>(spec.Count()) * SizeOf(DType::kBf16);
    absl::StrAppend(&text, ", \"", spec.name, R"(": {"dtype": "BF16", "shape": )",
                    ShapeText(spec.shape), ", \"data_offsets\": [", offset, ", ", end, "]}");
    offset = end;
  }
  text += '}';
  text.append((8 - text.size() % 8) % 8, ' ');
  *data_bytes = offset;
  return text;
}

// As json.dump(..., indent=1) writes them.
std::string IndexText(const std::vector<TensorSpec>& layout, uint64_t data_bytes) {
  std::string text = absl::StrCat("{\n \"metadata\": {\n  \"total_size\": ", data_bytes,
                                  "\n },\n \"weight_map\": {\n");
  std::string_view separator;
  for (const TensorSpec& spec : layout) {
    absl::StrAppend(&text, std::string(separator), "  \"", spec.name, "\": \"",
                    std::string(kWeightsFile), "\"");
    separator = ",\n";
  }
  return text + "\n }\n}";
}

std::string ConfigText(const SyntheticOptions& options) {
  return absl::StrCat(R"({
 "architectures": [
  "DeepseekOCRForCausalLM"
 ],
 "model_type": "deepseek_vl_v2",
 "torch_dtype": "bfloat16",
 "projector_config": {
  "input_dim": 2048,
  "model_type": "mlp_projector",
  "n_embed": 1280,
  "projector_type": "linear"
 },
 "vision_config": {
  "image_size": 1024,
  "mlp_ratio": 3.7362,
  "model_name": "deeplip_b_l",
  "model_type": "vision",
  "width": {
   "clip-l-14-224": {
    "heads": 16,
    "image_size": 224,
    "layers": )",
                      options.clip_layers, R"(,
    "patch_size": 14,
    "width": 1024
   },
   "sam_vit_b": {
    "downsample_channels": [
     512,
     1024
    ],
    "global_attn_indexes": [
     2,
     5,
     8,
     11
    ],
    "heads": 12,
    "layers": )",
                      options.sam_depth, R"(,
    "width": 768
   }
  }
 }
})");
}

// A piece of a tensor and where it goes in the file.
struct Chunk {
  const TensorSpec* spec;
  int64_t first, count;  // elements
  uint64_t offset;       // bytes
};

std::vector<Chunk> ChunksOf(const std::vector<TensorSpec>& layout, uint64_t offset) {
  std::vector<Chunk> chunks;
  for (const TensorSpec& spec : layout) {
    const int64_t total = spec.Count();
    for (int64_t first = 0; first < total; first += kChunk) {
      const int64_t count = std::min(kChunk, total - first);
      chunks.push_back({&spec, first, count, offset});
      offset += static_cast<uint64_t>(count) * sizeof(uint16_t);
    }
  }
  return chunks;
}

// Threads take the next chunk until there is none, or a write has failed.
absl::Status WriteChunks(const std::vector<Chunk>& chunks, const SyntheticOptions& options,
                         AtomicFile& file) {
  std::atomic<size_t> next{0};
  std::mutex mutex;
  absl::Status failure;
  const auto work = [&] {
    std::vector<uint16_t> values(kChunk);
    for (size_t i = next++; i < chunks.size(); i = next++) {
      const Chunk& chunk = chunks[i];
      const std::span<uint16_t> out(values.data(), static_cast<size_t>(chunk.count));
      SyntheticValues(*chunk.spec, options.seed, chunk.first, out);
      absl::Status status = file.WriteAt(chunk.offset, out.data(), out.size_bytes());
      if (!status.ok()) {
        const std::lock_guard lock(mutex);
        failure.Update(std::move(status));
        next = chunks.size();
      }
    }
  };
  const int threads = options.threads > 0
                          ? options.threads
                          : static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  {
    std::vector<std::jthread> pool;
    for (int i = 1; i < threads; ++i) pool.emplace_back(work);
    work();
  }
  return failure;
}

absl::Status WriteWeights(const std::string& path, const std::vector<TensorSpec>& layout,
                          const SyntheticOptions& options, uint64_t* data_bytes) {
  const std::string header = WeightsHeader(layout, data_bytes);
  absl::StatusOr<std::unique_ptr<AtomicFile>> file = AtomicFile::Create(path);
  if (!file.ok()) return file.status();
  const uint64_t length = header.size();
  const uint64_t data_offset = sizeof(length) + length;
  absl::Status status = (*file)->Reserve(data_offset + *data_bytes);
  status.Update((*file)->WriteAt(0, &length, sizeof(length)));
  status.Update((*file)->WriteAt(sizeof(length), header.data(), header.size()));
  if (!status.ok()) return status;
  status = WriteChunks(ChunksOf(layout, data_offset), options, **file);
  if (!status.ok()) return status;
  return (*file)->Commit();
}

}  // namespace

Spread SpreadOf(const TensorSpec& spec) {
  const std::string_view name = spec.name;
  // Norms first: their biases are wider than those of products.
  if (Contains(name, "norm") || Contains(name, "neck.1") || Contains(name, "neck.3")) {
    return name.ends_with("weight") ? Spread{1.0f, 0.3f} : Spread{0.0f, 0.2f};
  }
  if (Contains(name, "rel_pos")) return {0.0f, 0.25f};
  if (Contains(name, "pos_embed") || Contains(name, "position_embedding") ||
      Contains(name, "class_embedding")) {
    return {0.0f, 0.5f};
  }
  if (name.ends_with("image_newline") || name.ends_with("view_seperator")) return {0.0f, 1.0f};
  if (name.ends_with("bias")) return {0.0f, 0.1f};

  double gain = 1.0;
  if (Contains(name, "qkv")) gain = 1.4;  // attention logits with a spread of a few units
  for (const std::string_view output :
       {"attn.proj.weight", "lin2.weight", "out_proj.weight", "fc2.weight"}) {
    if (name.ends_with(output)) gain = 0.5;  // keeps the residual stream bounded
  }
  const int64_t fan_in = spec.Count() / spec.shape.front();
  const double half_width = gain * std::numbers::sqrt3 / std::sqrt(static_cast<double>(fan_in));
  return {0.0f, static_cast<float>(half_width)};
}

void SyntheticValues(const TensorSpec& spec, int64_t seed, int64_t first, std::span<uint16_t> out) {
  constexpr uint64_t kGolden = 0x9E3779B97F4A7C15u;
  const auto [centre, half_width] = SpreadOf(spec);
  uint64_t state = StreamOf(spec.name, seed) + static_cast<uint64_t>(first) * kGolden;
  for (uint16_t& value : out) {
    state += kGolden;
    const auto bits = static_cast<uint32_t>(SplitMix64(state) >> 40);
    const float u = static_cast<float>(bits) * 0x1p-24f;
    value = FloatToBf16(centre + (2.0f * u - 1.0f) * half_width);
  }
}

absl::Status WriteSyntheticCheckpoint(const std::string& folder, const SyntheticOptions& options) {
  for (const int depth : {options.sam_depth, options.clip_layers}) {
    if (depth < 1 || depth > kMaxDepth) {
      return absl::InvalidArgumentError(
          absl::StrCat("depths must be from 1 to ", kMaxDepth, ", found ", depth));
    }
  }
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) return absl::InvalidArgumentError(absl::StrCat(folder, ": ", error.message()));

  ModelConfig config;  // global blocks stay those of the full model
  config.sam_depth = options.sam_depth;
  config.clip_layers = options.clip_layers;
  const std::vector<TensorSpec> layout = CheckpointLayout(config);
  const auto path = [&](std::string_view name) {
    return (std::filesystem::path(folder) / name).string();
  };
  uint64_t data_bytes = 0;
  absl::Status status = WriteWeights(path(kWeightsFile), layout, options, &data_bytes);
  if (!status.ok()) return status;
  status = WriteFileAtomically(path(kIndexFile), IndexText(layout, data_bytes));
  if (!status.ok()) return status;
  return WriteFileAtomically(path(kConfigFile), ConfigText(options));
}

bool LooksSynthetic(const Checkpoint& checkpoint) {
  // Of different spreads, and long enough (1024 and 1280 values) that the mean square of a uniform
  // distribution has a standard deviation of 3 %: the 25 % below never reject one.
  for (const std::string_view name :
       {"model.image_newline", "model.view_seperator", "model.projector.layers.bias",
        "model.vision_model.embeddings.class_embedding",
        "model.vision_model.pre_layrnorm.weight"}) {
    const std::vector<float> values = checkpoint.GetFloats(name);
    const auto [centre, half_width] = SpreadOf({std::string(name), checkpoint.Get(name).shape});
    double mean_square = 0.0;
    for (const float value : values) {
      const double unit = (static_cast<double>(value) - centre) / half_width;  // in [-1, 1]
      if (!(std::fabs(unit) <= 1.02)) return false;  // the edge may have been rounded outwards
      mean_square += unit * unit / static_cast<double>(values.size());
    }
    if (std::fabs(mean_square * 3.0 - 1.0) > 0.25) return false;
  }
  return true;
}

}  // namespace deepencoder
