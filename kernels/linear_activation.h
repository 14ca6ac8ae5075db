// The model's activations in place: what a product without a fused epilogue leaves to do.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "encoder/base/dtype.h"
#include "kernels/linear.h"
#include "kernels/status.h"

namespace deepencoder::kernels {

// y = epilogue(y): y [m][n], row stride ldy, of any type, computed in fp32. n and ldy are multiples of
// 8, y is aligned to 16 bytes. kNone launches nothing.
Status LaunchActivation(DType type, int64_t m, int n, void* y, int64_t ldy, Epilogue epilogue,
                        cudaStream_t stream);

}  // namespace deepencoder::kernels
