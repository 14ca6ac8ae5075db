// Large batches of a device's slots run one after another.
//
// Kernels of several streams share the device. Two large batches that begin together run at half their speed each
// and end together, and then the device idles while the host, which has to wake up first, launches both of the next
// ones, again together. In order the second waits on the device itself: something is always there to go on with,
// and the first is done in half the time. Small batches are left out: they do not fill the device, and beside a
// large one they are done sooner than behind it.
#pragma once

#include <cuda_runtime.h>

#include <functional>
#include <memory>
#include <mutex>

#include "encoder/cuda/memory.h"

namespace deepencoder::cuda {

// One a device. Thread-safe.
class BatchOrder {
 public:
  // On the current device.
  static Status Create(std::unique_ptr<BatchOrder>* order);
  ~BatchOrder();
  BatchOrder(const BatchOrder&) = delete;
  BatchOrder& operator=(const BatchOrder&) = delete;

  // Runs `launch`, which puts work on `stream`. On the device it begins after what earlier calls launched.
  Status Launch(cudaStream_t stream, const std::function<Status()>& launch);

 private:
  BatchOrder() = default;

  std::mutex mutex_;
  cudaEvent_t last_ = nullptr;  // recorded behind each; a wait is for what was recorded before it
};

}  // namespace deepencoder::cuda
