// The projector's fp32 rows -> the reply's type, image by image, packed for one copy to the host.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "encoder/base/dtype.h"
#include "kernels/status.h"

namespace deepencoder::kernels {

// Where one image's rows go: its type and its first byte in the packed buffer, a multiple of 16.
struct ReplyPlace {
  int64_t offset;
  DType type;
};

//   rows   [batch][elements] fp32, elements a multiple of 8
//   places device array of `batch`
//   packed the buffer; rows of image b from byte places[b].offset
struct ReplyRowsArgs {
  int batch = 0;
  int64_t elements = 0;  // of one image
  const float* rows = nullptr;
  const ReplyPlace* places = nullptr;
  void* packed = nullptr;
};
Status LaunchReplyRows(const ReplyRowsArgs& args, cudaStream_t stream);

}  // namespace deepencoder::kernels
