#include <algorithm>

#include "encoder/resample/bicubic_filter.h"
#include "kernels/arguments.h"
#include "kernels/resample.h"

namespace deepencoder::kernels {
namespace {

constexpr int kThreads = 256;

struct Rgb {
  uint8_t r, g, b;
};

__device__ __forceinline__ uint8_t Clamp(int sum) {
  return static_cast<uint8_t>(min(max(sum >> kFilterFractionBits, 0), 255));
}

// Weighted sum of `count` pixels, `stride` bytes apart.
__device__ __forceinline__ Rgb Filter(const uint8_t* pixel, int64_t stride, const int32_t* weights,
                                      int count) {
  int r = 1 << (kFilterFractionBits - 1), g = r, b = r;
  for (int t = 0; t < count; ++t, pixel += stride) {
    const int w = weights[t];
    r += w * pixel[0], g += w * pixel[1], b += w * pixel[2];
  }
  return {Clamp(r), Clamp(g), Clamp(b)};
}

__device__ __forceinline__ void Write(uint8_t* to, Rgb pixel) {
  to[0] = pixel.r, to[1] = pixel.g, to[2] = pixel.b;
}

// grid: (columns of the resampled image, image rows, jobs)
__global__ void __launch_bounds__(kThreads)
    ResampleRowsKernel(const __grid_constant__ ResampleArgs args) {
  const ResampleJob& job = args.job[blockIdx.z];
  const int x = static_cast<int>(blockIdx.x * kThreads + threadIdx.x);
  if (job.x.weights == nullptr || x >= job.x.out) return;
  for (int y = static_cast<int>(blockIdx.y); y < args.height; y += static_cast<int>(gridDim.y)) {
    const uint8_t* row = args.image + static_cast<int64_t>(y) * args.width * 3;
    const Rgb value = Filter(row + job.x.first[x] * 3, 3,
                             job.x.weights + static_cast<int64_t>(x) * job.x.taps, job.x.count[x]);
    Write(job.between + (static_cast<int64_t>(y) * job.x.out + x) * 3, value);
  }
}

// grid: (columns of a view, rows of a view, views of all jobs)
__global__ void __launch_bounds__(kThreads)
    ResampleColumnsKernel(const __grid_constant__ ResampleArgs args) {
  int view = static_cast<int>(blockIdx.z), j = 0;
  while (view >= args.job[j].rows * args.job[j].columns)
    view -= args.job[j].rows * args.job[j].columns, ++j;
  const ResampleJob& job = args.job[j];
  const int vx = static_cast<int>(blockIdx.x * kThreads + threadIdx.x),
            vy = static_cast<int>(blockIdx.y);
  if (vx >= job.side || vy >= job.side) return;
  const int x = view % job.columns * job.side + vx - job.left;
  const int y = view / job.columns * job.side + vy - job.top;
  uint8_t* to = job.out + ((static_cast<int64_t>(view) * job.side + vy) * job.side + vx) * 3;
  if (x < 0 || x >= job.x.out || y < 0 || y >= job.y.out) {
    Write(to, {args.border, args.border, args.border});
    return;
  }
  const uint8_t* source = job.x.weights == nullptr ? args.image : job.between;
  const int64_t stride = static_cast<int64_t>(job.x.out) * 3;
  if (job.y.weights == nullptr) {
    const uint8_t* from = source + y * stride + x * 3;
    Write(to, {from[0], from[1], from[2]});
    return;
  }
  Write(to, Filter(source + job.y.first[y] * stride + x * 3, stride,
                   job.y.weights + static_cast<int64_t>(y) * job.y.taps, job.y.count[y]));
}

Status CheckAxis(const ResampleAxis& axis, int in, const char* name) {
  DEEPENCODER_RETURN(CheckRange(axis.out, 1, 1 << 20, name));
  if (axis.in != in)
    return InvalidArgument(std::string(name) + ": the axis was made for another image size");
  if (axis.weights == nullptr) {
    if (axis.in != axis.out)
      return InvalidArgument(std::string(name) + ": no weights though the size changes");
    return {};
  }
  DEEPENCODER_RETURN(CheckRange(axis.taps, 1, 1 << 24, name));
  DEEPENCODER_RETURN(CheckPointer(axis.first, name, 4));
  DEEPENCODER_RETURN(CheckPointer(axis.count, name, 4));
  return CheckPointer(axis.weights, name, 4);
}

}  // namespace

Status LaunchResample(const ResampleArgs& args, cudaStream_t stream) {
  DEEPENCODER_RETURN(CheckRange(args.jobs, 1, kMaxResampleJobs, "resample: jobs"));
  DEEPENCODER_RETURN(CheckRange(args.width, 1, 1 << 20, "resample: width"));
  DEEPENCODER_RETURN(CheckRange(args.height, 1, 1 << 20, "resample: height"));
  DEEPENCODER_RETURN(CheckPointer(args.image, "resample: image", 1));
  bool rows_change = false;
  int widest = 0, largest_side = 0, views = 0;
  for (int j = 0; j < args.jobs; ++j) {
    const ResampleJob& job = args.job[j];
    DEEPENCODER_RETURN(CheckAxis(job.x, args.width, "resample: x axis"));
    DEEPENCODER_RETURN(CheckAxis(job.y, args.height, "resample: y axis"));
    DEEPENCODER_RETURN(CheckRange(job.side, 1, 1 << 14, "resample: side"));
    DEEPENCODER_RETURN(CheckRange(job.columns, 1, 1 << 10, "resample: columns"));
    DEEPENCODER_RETURN(CheckRange(job.rows, 1, 1 << 10, "resample: rows"));
    DEEPENCODER_RETURN(CheckPointer(job.out, "resample: out", 1));
    if (job.x.weights != nullptr) {
      DEEPENCODER_RETURN(CheckPointer(job.between, "resample: between", 1));
      rows_change = true;
      widest = std::max(widest, job.x.out);
    }
    largest_side = std::max(largest_side, job.side);
    views += job.rows * job.columns;
  }
  DEEPENCODER_RETURN(CheckRange(views, 1, 65535, "resample: views"));
  if (rows_change) {
    const dim3 grid(static_cast<unsigned>(CeilDiv(widest, kThreads)), std::min(args.height, 65535),
                    args.jobs);
    ResampleRowsKernel<<<grid, kThreads, 0, stream>>>(args);
    DEEPENCODER_CUDA_RETURN(cudaGetLastError());
  }
  const dim3 grid(static_cast<unsigned>(CeilDiv(largest_side, kThreads)), largest_side, views);
  ResampleColumnsKernel<<<grid, kThreads, 0, stream>>>(args);
  DEEPENCODER_CUDA_RETURN(cudaGetLastError());
  return {};
}

}  // namespace deepencoder::kernels
