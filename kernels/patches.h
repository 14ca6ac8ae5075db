// Gathers that turn convolutions into dense products (kernels/linear.h), channels-last throughout.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "encoder/base/dtype.h"
#include "kernels/status.h"

namespace deepencoder::kernels {

// RGB8 views -> normalised 16 x 16 patches.
//   views   device array of `batch` pointers, each to [side][side][3] uint8, aligned to 16 bytes
//   patches [batch][side/16][side/16][16 ky][16 kx][3] type, value ((v/255) - 0.5)/0.5 in fp32,
//   rounded once
struct ViewPatchesArgs {
  DType type = DType::kBf16;
  int batch = 0, side = 0;
  const uint8_t* const* views = nullptr;
  void* patches = nullptr;
};
Status LaunchViewPatches(const ViewPatchesArgs& args, cudaStream_t stream);

// 3 x 3 neighbourhoods, zero padding 1.
//   x       [batch][grid][grid][channels] type, channels a multiple of 8
//   patches [batch][out][out][3 ky][3 kx][channels] type, out = (grid - 1)/stride + 1
struct ConvPatchesArgs {
  DType type = DType::kBf16;
  int batch = 0, grid = 0, channels = 0, stride = 1;
  const void* x = nullptr;
  void* patches = nullptr;
};
Status LaunchConvPatches(const ConvPatchesArgs& args, cudaStream_t stream);

}  // namespace deepencoder::kernels
