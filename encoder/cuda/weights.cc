#include "encoder/cuda/weights.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <string_view>
#include <utility>

#include "encoder/model/checkpoint_layout.h"
#include "encoder/model/tables.h"

namespace deepencoder::cuda {
namespace {

constexpr size_t kAlignment = 256;

// Walks the model twice: once to measure, once to upload, so that both agree by construction.
class Loader {
 public:
  Loader(const WeightsSource& source, const std::map<std::string_view, const DeTensor*>& tensors)
      : source_(source), tensors_(tensors) {}

  size_t bytes() const { return used_; }
  const Status& status() const { return status_; }
  void Upload(DeviceBuffer* memory) { memory_ = memory, used_ = 0; }

  Dense ReadDense(const std::string& name, bool bias = true) {
    return {Matrix(name + ".weight"), bias ? Matrix(name + ".bias") : nullptr};
  }
  Norm ReadNorm(const std::string& name) {
    return {Floats(name + ".weight"), Floats(name + ".bias")};
  }
  const void* Matrix(const std::string& name) {
    const DeTensor& tensor = Get(name);
    return Put(
        tensor, Count(tensor), source_.type, [](const float* values) { return values; }, name);
  }
  // [out][in][ky][kx] -> [out][ky][kx][in]
  Dense ReadConvolution(const std::string& name, bool bias) {
    const DeTensor& tensor = Get(name + ".weight");
    const int64_t out = tensor.shape[0], in = tensor.shape[1],
                  area = tensor.shape[2] * tensor.shape[3];
    std::vector<float> turned;
    const auto turn = [&](const float* values) {
      turned.resize(static_cast<size_t>(out * in * area));
      for (int64_t o = 0; o < out; ++o)
        for (int64_t c = 0; c < in; ++c)
          for (int64_t k = 0; k < area; ++k)
            turned[(o * area + k) * in + c] = values[(o * in + c) * area + k];
      return static_cast<const float*>(turned.data());
    };
    return {Put(tensor, Count(tensor), source_.type, turn, name),
            bias ? Matrix(name + ".bias") : nullptr};
  }
  // A table made from a tensor's values.
  const void* Table(const std::string& name, int64_t count,
                    const std::function<std::vector<float>(const float*)>& make) {
    std::vector<float> made;
    const auto keep = [&](const float* values) {
      made = make(values);
      return static_cast<const float*>(made.data());
    };
    return Put(Get(name), count, source_.type, keep, name);
  }
  void Release(const std::string& name) {
    if (memory_ != nullptr && source_.release != nullptr)
      source_.release(source_.release_context, name.c_str());
  }

 private:
  using Transform = std::function<const float*(const float*)>;

  static int64_t Count(const DeTensor& tensor) {
    int64_t count = 1;
    for (int i = 0; i < tensor.rank; ++i) count *= tensor.shape[i];
    return count;
  }
  const DeTensor& Get(const std::string& name) { return *tensors_.at(name); }
  const float* Floats(const std::string& name) {
    const DeTensor& tensor = Get(name);
    return static_cast<const float*>(Put(
        tensor, Count(tensor), DType::kFp32, [](const float* values) { return values; }, name));
  }

  const void* Put(const DeTensor& tensor, int64_t count, DType type, const Transform& transform,
                  const std::string& name) {
    const size_t offset = used_;
    const size_t bytes = static_cast<size_t>(count) * SizeOf(type);
    used_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
    if (memory_ == nullptr || !status_.ok()) return nullptr;
    floats_.resize(static_cast<size_t>(Count(tensor)));
    ConvertToFloat(static_cast<DType>(tensor.dtype), tensor.data, floats_.data(), floats_.size());
    const float* values = transform(floats_.data());
    stored_.resize(bytes);
    Convert(values, type, stored_.data(), static_cast<size_t>(count));
    if (type == DType::kFp16) CheckFinite(values, static_cast<size_t>(count), name);
    std::byte* to = memory_->at(offset);
    if (const cudaError_t error = cudaMemcpy(to, stored_.data(), bytes, cudaMemcpyHostToDevice);
        error != cudaSuccess && status_.ok()) {
      status_ = kernels::CudaStatus(error, ("copy of " + name).c_str(), __FILE__, __LINE__);
    }
    return to;
  }

  void CheckFinite(const float* values, size_t count, const std::string& name) {
    constexpr float kLargest = 65519.996f;  // rounds to a finite half
    for (size_t i = 0; i < count; ++i) {
      if (values[i] >= -kLargest && values[i] <= kLargest) continue;
      status_ = kernels::InvalidArgument(name + " holds " + std::to_string(values[i]) +
                                         ", which fp16 cannot: use bf16");
      return;
    }
  }

  const WeightsSource& source_;
  const std::map<std::string_view, const DeTensor*>& tensors_;
  DeviceBuffer* memory_ = nullptr;
  size_t used_ = 0;
  Status status_;
  std::vector<float> floats_;
  std::vector<std::byte> stored_;
};

const void* ReadSamPositions(Loader& loader, int grid) {
  return loader.Table(
      "model.sam_model.pos_embed", int64_t{grid} * grid * kSamWidth,
      [&](const float* stored) { return ResizePositions(stored, kStoredGrid, grid, kSamWidth); });
}

const void* ReadClipPositions(Loader& loader, int grid) {
  const int64_t count = (int64_t{grid} * grid + 1) * kClipWidth;
  return loader.Table(
      "model.vision_model.embeddings.position_embedding.weight", count, [&](const float* stored) {
        std::vector<float> table(stored, stored + kClipWidth);  // the class token's row
        const std::vector<float> rest =
            ResizePositions(stored + kClipWidth, kClipStoredGrid, grid, kClipWidth);
        table.insert(table.end(), rest.begin(), rest.end());
        return table;
      });
}

RelPos ReadRelPos(Loader& loader, const std::string& attention, int stored, int extent) {
  const auto read = [&](const char* name) {
    const int rows = 2 * extent - 1;
    return loader.Table(attention + name, int64_t{rows} * kHeadSize, [&](const float* table) {
      return ResizeRelPos(table, 2 * stored - 1, rows, kHeadSize);
    });
  };
  return {read(".rel_pos_h"), read(".rel_pos_w")};
}

SamBlockWeights ReadSamBlock(Loader& loader, const WeightsSource& source, int index) {
  const std::string name = "model.sam_model.blocks." + std::to_string(index);
  SamBlockWeights block;
  block.global = source.model.IsGlobal(index);
  block.norm1 = loader.ReadNorm(name + ".norm1");
  block.qkv = loader.ReadDense(name + ".attn.qkv");
  block.proj = loader.ReadDense(name + ".attn.proj");
  block.norm2 = loader.ReadNorm(name + ".norm2");
  block.lin1 = loader.ReadDense(name + ".mlp.lin1");
  block.lin2 = loader.ReadDense(name + ".mlp.lin2");
  if (block.global) {
    for (const int side : source.sides) {
      block.rel_pos.push_back(ReadRelPos(loader, name + ".attn", kStoredGrid, GridOf(side)));
    }
  } else {
    block.rel_pos.push_back(ReadRelPos(loader, name + ".attn", kWindow, kWindow));
  }
  return block;
}

ClipLayerWeights ReadClipLayer(Loader& loader, int index) {
  const std::string name = "model.vision_model.transformer.layers." + std::to_string(index);
  ClipLayerWeights layer;
  layer.norm1 = loader.ReadNorm(name + ".layer_norm1");
  layer.qkv = loader.ReadDense(name + ".self_attn.qkv_proj");
  layer.out = loader.ReadDense(name + ".self_attn.out_proj");
  layer.norm2 = loader.ReadNorm(name + ".layer_norm2");
  layer.fc1 = loader.ReadDense(name + ".mlp.fc1");
  layer.fc2 = loader.ReadDense(name + ".mlp.fc2");
  return layer;
}

void ReadModel(Loader& loader, const WeightsSource& source, Weights* weights) {
  weights->type = source.type;
  weights->sides.clear(), weights->sam.clear(), weights->clip.clear();
  for (const int side : source.sides) {
    weights->sides.push_back({side, ReadSamPositions(loader, GridOf(side)),
                              ReadClipPositions(loader, OutputGridOf(side))});
  }
  const std::string sam = "model.sam_model.", clip = "model.vision_model.";
  weights->patch = loader.ReadConvolution(sam + "patch_embed.proj", true);
  for (int i = 0; i < source.model.sam_depth; ++i)
    weights->sam.push_back(ReadSamBlock(loader, source, i));
  weights->neck0 = loader.ReadConvolution(sam + "neck.0", false);
  weights->neck1 = loader.ReadNorm(sam + "neck.1");
  weights->neck2 = loader.ReadConvolution(sam + "neck.2", false);
  weights->neck3 = loader.ReadNorm(sam + "neck.3");
  weights->net2 = loader.ReadConvolution(sam + "net_2", false);
  weights->net3 = loader.ReadConvolution(sam + "net_3", false);
  weights->class_row = loader.Matrix(clip + "embeddings.class_embedding");
  weights->pre_norm = loader.ReadNorm(clip + "pre_layrnorm");
  for (int i = 0; i < source.model.clip_layers; ++i)
    weights->clip.push_back(ReadClipLayer(loader, i));
  weights->projector = loader.ReadDense("model.projector.layers");
}

Status IndexTensors(const WeightsSource& source,
                    std::map<std::string_view, const DeTensor*>* index) {
  for (int i = 0; i < source.tensor_count; ++i) {
    const DeTensor& tensor = source.tensors[i];
    if (tensor.name == nullptr || tensor.data == nullptr) {
      return kernels::InvalidArgument("tensor " + std::to_string(i) + " has no name or no data");
    }
    (*index)[tensor.name] = &tensor;
  }
  for (const TensorSpec& spec : CheckpointLayout(source.model)) {
    if (!spec.used) continue;
    const auto found = index->find(spec.name);
    if (found == index->end())
      return kernels::InvalidArgument("tensor " + spec.name + " is missing");
    const DeTensor& tensor = *found->second;
    const bool same = tensor.rank == static_cast<int32_t>(spec.shape.size()) &&
                      std::equal(spec.shape.begin(), spec.shape.end(), tensor.shape);
    if (!same)
      return kernels::InvalidArgument("tensor " + spec.name +
                                      " has another shape than the model needs");
    if (tensor.dtype < DE_BF16 || tensor.dtype > DE_FP32) {
      return kernels::InvalidArgument("tensor " + spec.name + " has an unknown type");
    }
  }
  return {};
}

}  // namespace

Status LoadWeights(const WeightsSource& source, MemoryAccount* account, Weights* weights) {
  std::map<std::string_view, const DeTensor*> tensors;
  DEEPENCODER_RETURN(IndexTensors(source, &tensors));
  Loader loader(source, tensors);
  ReadModel(loader, source, weights);
  DEEPENCODER_RETURN(
      DeviceBuffer::Create(loader.bytes(), MemoryKind::kWeights, account, &weights->memory));
  loader.Upload(&weights->memory);
  ReadModel(loader, source, weights);
  DEEPENCODER_RETURN(loader.status());
  for (int i = 0; i < source.tensor_count; ++i) loader.Release(source.tensors[i].name);
  return {};
}

}  // namespace deepencoder::cuda
