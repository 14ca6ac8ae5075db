// Chooses the fastest of several ways of computing a dense layer by running them.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

#include "kernels/linear_product.h"

namespace deepencoder::kernels {

// Device memory that measurements run in, kept from one shape to the next. Not thread-safe.
class MeasureScratch {
 public:
  MeasureScratch() = default;
  ~MeasureScratch() { Release(); }
  MeasureScratch(const MeasureScratch&) = delete;
  MeasureScratch& operator=(const MeasureScratch&) = delete;

  // At least `bytes`. kResourceExhausted if there is not enough memory: nothing is held then.
  Status Reserve(size_t bytes);
  void Release();
  unsigned char* data() const { return data_; }

 private:
  unsigned char* data_ = nullptr;
  size_t bytes_ = 0;
};

struct Measured {
  std::shared_ptr<const LinearProduct> product;
  float milliseconds = 0;
};

// The fastest of those `products` whose result has the same bits as the one's at index `reference`, on random
// operands and on such as show the order of every sum. Products whose launch fails are passed over, but not the
// reference. Waits for the device. kResourceExhausted if the memory to run in is not there.
Status MeasureProducts(const LinearShape& shape, const LinearProducts& products, size_t reference,
                       MeasureScratch& scratch, Measured* best);

}  // namespace deepencoder::kernels
