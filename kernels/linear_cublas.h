// Dense layers through cuBLASLt.
#pragma once

#include <cublasLt.h>

#include "kernels/linear_product.h"

namespace deepencoder::kernels {

// Appends up to `count` products, cuBLASLt's best guess first, to *products; adds none if it has no
// algorithm for the shape. The handle must outlive them.
Status AddCublasProducts(cublasLtHandle_t handle, const LinearShape& shape, size_t workspace_bytes,
                         int count, LinearProducts* products);

}  // namespace deepencoder::kernels
