// Views of an image, equal to Pillow's bicubic resize to the bit: fixed point with 22 fraction
// bits, rows first, then columns, rounded to 8 bits in between. The filters are made on the host
// (double precision).
//
//   image [height][width][3] uint8
//   job   one resampling of the whole image to width x height, from which columns x rows square
//   views are cut
//         (tiles), or which is pasted at (left, top) of one view (letterbox; the border is grey)
//   views [views of job 0, row by row][views of job 1] ... each [side][side][3] uint8, at the job's
//   `out`
//
// Two launches for all jobs: one along rows, one along columns that also cuts and pastes.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/status.h"

namespace deepencoder::kernels {

// One axis: out[i] = (2^21 + sum over t < count[i] of weights[i*taps + t] * in[first[i] + t]) >>
// 22, clamped. Arrays in device memory; weights null: the axis keeps its size and is copied.
struct ResampleAxis {
  int in = 0, out = 0, taps = 0;
  const int32_t* first = nullptr;
  const int32_t* count = nullptr;
  const int32_t* weights = nullptr;
};

struct ResampleJob {
  ResampleAxis x, y;
  int side = 0, columns = 1, rows = 1, left = 0, top = 0;
  uint8_t* between = nullptr;  // [image height][x.out][3], scratch; unused if x keeps its size
  uint8_t* out = nullptr;      // [rows*columns][side][side][3]
};

inline constexpr int kMaxResampleJobs = 2;

struct ResampleArgs {
  int width = 0, height = 0;
  const uint8_t* image = nullptr;
  int jobs = 0;
  ResampleJob job[kMaxResampleJobs] = {};
  uint8_t border = 127;
};

Status LaunchResample(const ResampleArgs& args, cudaStream_t stream);

}  // namespace deepencoder::kernels
