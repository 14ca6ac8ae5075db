// One way of computing a dense layer: a cuBLASLt algorithm or a tiling of our own kernel. Linear chooses
// among them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "kernels/linear.h"

namespace deepencoder::kernels {

// Launch takes buffers that were checked against `shape`; shapes have their strides filled in.
class LinearProduct {
 public:
  virtual ~LinearProduct() = default;
  virtual Status Launch(const LinearBuffers& buffers, void* workspace, size_t workspace_bytes,
                        cudaStream_t stream) const = 0;
  virtual size_t workspace_bytes() const = 0;
  virtual std::string name() const = 0;
};

using LinearProducts = std::vector<std::shared_ptr<const LinearProduct>>;

// Rows of one group; m where there are no groups.
inline int GroupRows(const LinearShape& shape) {
  return shape.group_rows == 0 ? shape.m : shape.group_rows;
}
inline int Groups(const LinearShape& shape) { return shape.m / GroupRows(shape); }

}  // namespace deepencoder::kernels
