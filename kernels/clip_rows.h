// CLIP's residual stream -> the projector's operand: the class token dropped, converted to the model type.
//   x [batch][tokens][1024] fp32      y [batch][tokens - 1][1024] type
#pragma once

#include <cuda_runtime_api.h>

#include "encoder/base/dtype.h"
#include "kernels/status.h"

namespace deepencoder::kernels {

struct ClipRowsArgs {
  DType type = DType::kBf16;
  int batch = 0, tokens = 0;
  const float* x = nullptr;
  void* y = nullptr;
};
Status LaunchClipRows(const ClipRowsArgs& args, cudaStream_t stream);

}  // namespace deepencoder::kernels
