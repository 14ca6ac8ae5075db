// Dense layers on Hopper by our own kernel (gemm_sm90.cuh): epilogue fused, y rounded once.
#pragma once

#include "kernels/linear_product.h"

namespace deepencoder::kernels {

// Appends one product for each tiling that suits the shape; none if the current device is no Hopper GPU
// or this build has no code for it.
Status AddSm90Products(const LinearShape& shape, LinearProducts* products);

}  // namespace deepencoder::kernels
