// Views made on the device from a decoded image.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "encoder/backend/cuda_abi.h"
#include "encoder/cuda/memory.h"

namespace deepencoder::cuda {

// Stream-ordered device memory for images and views: it is kept for the next image instead of given back, so
// that making views costs no cudaMalloc. Thread-safe.
class ViewPool {
 public:
  ViewPool() = default;
  ViewPool(const ViewPool&) = delete;
  ViewPool& operator=(const ViewPool&) = delete;
  ~ViewPool();

  static Status Create(int device, MemoryAccount* account, std::unique_ptr<ViewPool>* pool);

  Status Allocate(size_t bytes, cudaStream_t stream, void** data);
  // The memory is reused once what `stream` holds so far is done.
  void Free(void* data, cudaStream_t stream);

  int device() const { return device_; }

 private:
  // What the device has given to the pool, used or kept, goes to the account.
  void Count();

  int device_ = 0;
  cudaMemPool_t pool_ = nullptr;
  MemoryAccount* account_ = nullptr;
  std::mutex counting_;
};

// The views of one image, in the order of the jobs that made them. Immutable.
class Views {
 public:
  // Uploads the image, resamples it (kernels/resample.h) and waits until the views are there. Thread-safe.
  static Status Create(ViewPool* pool, const uint8_t* rgb, int width, int height,
                       const DeResizeJob* jobs, int job_count, std::unique_ptr<Views>* views);
  ~Views();
  Views(const Views&) = delete;
  Views& operator=(const Views&) = delete;

  int count() const { return static_cast<int>(places_.size()); }
  int side(int view) const { return places_[view].side; }
  int device() const { return pool_->device(); }
  const uint8_t* data(int view) const { return data_ + places_[view].offset; }  // device memory
  size_t bytes() const { return bytes_; }

 private:
  struct Place {
    int side;
    size_t offset;
  };
  explicit Views(ViewPool* pool) : pool_(pool) {}

  ViewPool* pool_;
  uint8_t* data_ = nullptr;
  size_t bytes_ = 0;
  std::vector<Place> places_;
};

}  // namespace deepencoder::cuda
