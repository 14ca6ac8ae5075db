// cuBLASLt adds a bias only in the type of y: a bias in the model's type is widened for an fp32 y.
#pragma once

#include <cuda_runtime_api.h>

#include "encoder/base/dtype.h"
#include "kernels/status.h"

namespace deepencoder::kernels {

// wide [n] fp32 = bias [n] of `type`, a model type. n is a multiple of 8, pointers aligned to 16 bytes.
Status LaunchWidenBias(DType type, int n, const void* bias, float* wide, cudaStream_t stream);

}  // namespace deepencoder::kernels
