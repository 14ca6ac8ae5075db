#include "encoder/cuda/views.h"

#include <cstring>
#include <string>
#include <utility>

#include "encoder/resample/bicubic_filter.h"
#include "kernels/arguments.h"
#include "kernels/resample.h"

namespace deepencoder::cuda {
namespace {

constexpr size_t kAlignment = 256;
size_t Align(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

// A stream of this thread: images are prepared side by side by the threads that decoded them.
class ThreadStream {
 public:
  ~ThreadStream() {
    if (stream_ != nullptr) cudaStreamDestroy(stream_);
  }
  Status Get(int device, cudaStream_t* stream) {
    DEEPENCODER_CUDA_RETURN(cudaSetDevice(device));
    cudaGetLastError();  // of a call before, which has reported it: launches here ask for the last one
    if (stream_ != nullptr && device_ != device) {
      cudaStreamDestroy(stream_);
      stream_ = nullptr;
    }
    if (stream_ == nullptr) {
      // Before the encoder's work: views are small, and what waits for them is a thread, and later a batch.
      int least = 0, greatest = 0;
      DEEPENCODER_CUDA_RETURN(cudaDeviceGetStreamPriorityRange(&least, &greatest));
      DEEPENCODER_CUDA_RETURN(
          cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, greatest));
      device_ = device;
    }
    *stream = stream_;
    return {};
  }

 private:
  cudaStream_t stream_ = nullptr;
  int device_ = -1;
};

thread_local ThreadStream this_thread_stream;

// What one image needs beside its views, in one block: pixels, filters, the images between the two passes.
class Scratch {
 public:
  size_t Reserve(size_t bytes) {
    const size_t at = bytes_;
    bytes_ += Align(bytes);
    return at;
  }
  size_t bytes() const { return bytes_; }

 private:
  size_t bytes_ = 0;
};

// Filters of both axes of every job as one array of int32, uploaded in one copy.
class Filters {
 public:
  // Positions of the arrays, in elements; the axis has no filter if its size stays.
  struct Axis {
    int in, out, taps = 0;
    int64_t first = -1, count = -1, weights = -1;
  };

  Axis Add(int in, int out) {
    Axis axis{in, out};
    if (in == out) return axis;
    const BicubicFilter filter = MakeBicubicFilter(in, out);
    axis.taps = filter.taps;
    axis.first = Append(filter.first), axis.count = Append(filter.count),
    axis.weights = Append(filter.weights);
    return axis;
  }
  const std::vector<int32_t>& values() const { return values_; }

  static kernels::ResampleAxis On(const Axis& axis, const int32_t* device) {
    if (axis.weights < 0) return {.in = axis.in, .out = axis.out};
    return {.in = axis.in,
            .out = axis.out,
            .taps = axis.taps,
            .first = device + axis.first,
            .count = device + axis.count,
            .weights = device + axis.weights};
  }

 private:
  int64_t Append(const std::vector<int32_t>& from) {
    const auto at = static_cast<int64_t>(values_.size());
    values_.insert(values_.end(), from.begin(), from.end());
    return at;
  }
  std::vector<int32_t> values_;
};

Status CheckJobs(int width, int height, const DeResizeJob* jobs, int count) {
  DEEPENCODER_RETURN(kernels::CheckRange(width, 1, 1 << 20, "image width"));
  DEEPENCODER_RETURN(kernels::CheckRange(height, 1, 1 << 20, "image height"));
  DEEPENCODER_RETURN(
      kernels::CheckRange(count, 1, kernels::kMaxResampleJobs, "number of resize jobs"));
  for (int j = 0; j < count; ++j) {
    DEEPENCODER_RETURN(kernels::CheckRange(jobs[j].width, 1, 1 << 17, "width of a resize job"));
    DEEPENCODER_RETURN(kernels::CheckRange(jobs[j].height, 1, 1 << 17, "height of a resize job"));
    DEEPENCODER_RETURN(kernels::CheckRange(jobs[j].side, 16, 1 << 13, "view side"));
    DEEPENCODER_RETURN(kernels::CheckRange(jobs[j].columns, 1, 256, "columns of a resize job"));
    DEEPENCODER_RETURN(kernels::CheckRange(jobs[j].rows, 1, 256, "rows of a resize job"));
  }
  return {};
}

}  // namespace

ViewPool::~ViewPool() {
  if (pool_ == nullptr) return;
  cudaMemPoolDestroy(pool_);
  account_->Set(MemoryKind::kViews, 0);
}

Status ViewPool::Create(int device, MemoryAccount* account, std::unique_ptr<ViewPool>* pool) {
  auto made = std::make_unique<ViewPool>();
  made->device_ = device, made->account_ = account;
  cudaMemPoolProps properties = {};
  properties.allocType = cudaMemAllocationTypePinned;
  properties.location = {.type = cudaMemLocationTypeDevice, .id = device};
  DEEPENCODER_CUDA_RETURN(cudaMemPoolCreate(&made->pool_, &properties));
  uint64_t keep = UINT64_MAX;
  DEEPENCODER_CUDA_RETURN(
      cudaMemPoolSetAttribute(made->pool_, cudaMemPoolAttrReleaseThreshold, &keep));
  *pool = std::move(made);
  return {};
}

Status ViewPool::Allocate(size_t bytes, cudaStream_t stream, void** data) {
  const cudaError_t error = cudaMallocFromPoolAsync(data, bytes, pool_, stream);
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    return {Code::kResourceExhausted,
            "no device memory for the views of an image (" + std::to_string(bytes) + " bytes)"};
  }
  DEEPENCODER_CUDA_RETURN(error);
  Count();
  return {};
}

void ViewPool::Free(void* data, cudaStream_t stream) { cudaFreeAsync(data, stream); }

void ViewPool::Count() {
  uint64_t reserved = 0;
  const std::lock_guard lock(counting_);
  if (cudaMemPoolGetAttribute(pool_, cudaMemPoolAttrReservedMemCurrent, &reserved) == cudaSuccess)
    account_->Set(MemoryKind::kViews, static_cast<int64_t>(reserved));
}

Views::~Views() {
  if (data_ == nullptr) return;
  // Whoever read the views has waited for its stream, so no order with that stream is needed.
  cudaStream_t stream = nullptr;
  if (this_thread_stream.Get(pool_->device(), &stream).ok()) pool_->Free(data_, stream);
}

Status Views::Create(ViewPool* pool, const uint8_t* rgb, int width, int height,
                     const DeResizeJob* jobs, int job_count, std::unique_ptr<Views>* views) {
  DEEPENCODER_RETURN(kernels::CheckPointer(rgb, "rgb", 1));
  DEEPENCODER_RETURN(kernels::CheckPointer(jobs, "jobs", alignof(DeResizeJob)));
  DEEPENCODER_RETURN(CheckJobs(width, height, jobs, job_count));
  cudaStream_t stream = nullptr;
  DEEPENCODER_RETURN(this_thread_stream.Get(pool->device(), &stream));

  std::unique_ptr<Views> made(new Views(pool));
  Scratch scratch;
  Filters filters;
  Filters::Axis x[kernels::kMaxResampleJobs], y[kernels::kMaxResampleJobs];
  size_t between[kernels::kMaxResampleJobs] = {}, out[kernels::kMaxResampleJobs] = {};
  const size_t image_bytes = size_t{3} * width * height;
  const size_t image_at = scratch.Reserve(image_bytes);
  for (int j = 0; j < job_count; ++j) {
    const DeResizeJob& job = jobs[j];
    x[j] = filters.Add(width, job.width), y[j] = filters.Add(height, job.height);
    if (width != job.width) between[j] = scratch.Reserve(size_t{3} * job.width * height);
    out[j] = made->bytes_;
    for (int view = 0; view < job.columns * job.rows; ++view) {
      made->places_.push_back({job.side, made->bytes_});
      made->bytes_ +=
          size_t{3} * job.side * job.side;  // a multiple of 16 for sides that are multiples of 16
    }
  }
  const size_t filters_at = scratch.Reserve(filters.values().size() * sizeof(int32_t));

  void* memory = nullptr;
  DEEPENCODER_RETURN(pool->Allocate(made->bytes_, stream, &memory));
  made->data_ = static_cast<uint8_t*>(memory);
  void* block = nullptr;
  DEEPENCODER_RETURN(pool->Allocate(scratch.bytes(), stream, &block));
  auto* base = static_cast<uint8_t*>(block);

  kernels::ResampleArgs args = {
      .width = width, .height = height, .image = base + image_at, .jobs = job_count};
  for (int j = 0; j < job_count; ++j) {
    const auto* device_filters = reinterpret_cast<const int32_t*>(base + filters_at);
    args.job[j] = {.x = Filters::On(x[j], device_filters),
                   .y = Filters::On(y[j], device_filters),
                   .side = jobs[j].side,
                   .columns = jobs[j].columns,
                   .rows = jobs[j].rows,
                   .left = jobs[j].left,
                   .top = jobs[j].top,
                   .between = base + between[j],
                   .out = made->data_ + out[j]};
  }
  const auto enqueue = [&]() -> Status {
    DEEPENCODER_CUDA_RETURN(
        cudaMemcpyAsync(base + image_at, rgb, image_bytes, cudaMemcpyHostToDevice, stream));
    DEEPENCODER_CUDA_RETURN(cudaMemcpyAsync(base + filters_at, filters.values().data(),
                                            filters.values().size() * sizeof(int32_t),
                                            cudaMemcpyHostToDevice, stream));
    DEEPENCODER_RETURN(kernels::LaunchResample(args, stream));
    DEEPENCODER_CUDA_RETURN(cudaStreamSynchronize(stream));
    return {};
  };
  const Status status = enqueue();
  pool->Free(block, stream);
  if (status.ok()) *views = std::move(made);
  return status;
}

}  // namespace deepencoder::cuda
