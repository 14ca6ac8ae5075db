// Operands of a dense layer in scratch memory, for measuring products and for telling apart those whose results
// differ in any bit.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "kernels/linear_product.h"

namespace deepencoder::kernels {

// What the operands hold.
enum class OperandData : uint8_t {
  // Numbers in [-1, 1) everywhere: the time is real, and so is the order in which bias and residual are added.
  kRandom,
  // The second half of every sum over k takes back the first, and bias and residual are zero: the result is what
  // rounding left of the partial sums. Products that add in another order differ in nearly every element then,
  // where rounding y to 16 bits would hide all but one difference in some 2^15.
  kCancelling,
};

class LinearOperands {
 public:
  // Device memory that a layer and the largest workspace of `products` need.
  static size_t Bytes(const LinearShape& shape, const LinearProducts& products);

  // `memory`: device memory of Bytes(), which outlives this. Nothing is filled yet.
  LinearOperands(const LinearShape& shape, const LinearProducts& products, unsigned char* memory);

  // Enqueues the filling of every operand.
  Status Fill(OperandData data, cudaStream_t stream);

  Status Launch(const LinearProduct& product, cudaStream_t stream) const {
    return product.Launch(buffers_, workspace_, workspace_bytes_, stream);
  }

  // The residual is y itself where the strides allow it, as in the model.
  const LinearBuffers& buffers() const { return buffers_; }

  // Runs the product on what Fill() last put there. Equal results have equal fingerprints, whatever product made
  // them; different ones but for chance of 2^-64. Waits.
  Status Fingerprint(const LinearProduct& product, cudaStream_t stream, uint64_t* fingerprint);

 private:
  Status FillY(cudaStream_t stream) const;
  Status Cancel(cudaStream_t stream) const;

  LinearShape shape_;
  OperandData data_ = OperandData::kRandom;
  unsigned char* memory_;
  size_t fill_bytes_ = 0;  // of all operands
  size_t y_bytes_ = 0, bias_bytes_ = 0, residual_bytes_ = 0, workspace_bytes_ = 0;
  LinearBuffers buffers_;
  void* bias_ = nullptr;
  void* residual_ = nullptr;  // null where it is y itself
  void* workspace_ = nullptr;
  unsigned long long* sum_ = nullptr;
};

}  // namespace deepencoder::kernels
