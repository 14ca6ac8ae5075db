// y = epilogue(y + bias) in place: what a product without a fused epilogue leaves to do.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "encoder/base/dtype.h"
#include "kernels/linear.h"
#include "kernels/status.h"

namespace deepencoder::kernels {

// y [m][n], row stride ldy, of y_type; bias [n] of `type` (a model type), may be null. n and ldy are
// multiples of 8, pointers aligned to 16 bytes.
Status LaunchLinearFinish(DType type, DType y_type, int64_t m, int n, void* y, int64_t ldy,
                          const void* bias, Epilogue epilogue, cudaStream_t stream);

}  // namespace deepencoder::kernels
