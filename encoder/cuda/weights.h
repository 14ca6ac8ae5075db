// The model's weights on a device, in the order the encoder reads them.
//
// Everything lies in one allocation. Matrices, their biases and tables are in the model type (bf16 or fp16);
// norms are fp32. Convolutions are turned channels-last, [out][ky][kx][in], as the gathers of kernels/patches.h
// lay out their operand. Position tables are resized for every view side in use.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "encoder/backend/cuda_abi.h"
#include "encoder/base/dtype.h"
#include "encoder/cuda/memory.h"
#include "encoder/model/config.h"

namespace deepencoder::cuda {

struct Dense {
  const void* weight = nullptr;  // [out][in]
  const void* bias = nullptr;    // [out]; null: none
};

struct Norm {
  const float* weight = nullptr;
  const float* bias = nullptr;
};

struct RelPos {
  const void* h = nullptr;  // [2*extent - 1][64]
  const void* w = nullptr;
};

struct SamBlockWeights {
  bool global = false;
  Norm norm1, norm2;
  Dense qkv, proj, lin1, lin2;
  std::vector<RelPos> rel_pos;  // global: one a side, in the order of Weights::sides; window: one
};

struct ClipLayerWeights {
  Norm norm1, norm2;
  Dense qkv, out, fc1, fc2;
};

// Tables that depend on the view's side.
struct SideWeights {
  int side = 0;
  const void* sam_positions = nullptr;   // [g*g][768]
  const void* clip_positions = nullptr;  // [c*c + 1][1024], row 0 the class token's
};

struct Weights {
  DType type = DType::kBf16;
  std::vector<SideWeights> sides;
  Dense patch;
  std::vector<SamBlockWeights> sam;
  Dense neck0, neck2, net2, net3;
  Norm neck1, neck3;
  const void* class_row = nullptr;  // [1024]
  Norm pre_norm;
  std::vector<ClipLayerWeights> clip;
  Dense projector;  // [1280][2048]: columns of CLIP, then of SAM

  DeviceBuffer memory;
};

struct WeightsSource {
  DType type = DType::kBf16;
  ModelConfig model;
  std::vector<int> sides;
  const DeTensor* tensors = nullptr;
  int tensor_count = 0;
  void (*release)(void* context, const char* name) = nullptr;  // may be null
  void* release_context = nullptr;
};

// Uploads to the current device. Errors: kInvalidArgument (a tensor is missing, has another shape, or a value that
// fp16 cannot hold), kResourceExhausted, kDevice.
Status LoadWeights(const WeightsSource& source, MemoryAccount* account, Weights* weights);

}  // namespace deepencoder::cuda
