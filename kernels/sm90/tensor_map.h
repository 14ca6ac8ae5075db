// Host side of the copy engine: describing a tensor to it.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstdint>
#include <string>

#include "encoder/base/dtype.h"
#include "kernels/status.h"

namespace deepencoder::kernels::sm90 {

using EncodeTiled = CUresult (*)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*,
                                 const cuuint64_t*, const cuuint64_t*, const cuuint32_t*,
                                 const cuuint32_t*, CUtensorMapInterleave, CUtensorMapSwizzle,
                                 CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

// The driver's encoder, asked of the runtime: a program that links libcuda does not start without it.
inline EncodeTiled FindEncodeTiled() {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found{};
  const cudaError_t error = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function,
                                                             12000, cudaEnableDefault, &found);
  if (error != cudaSuccess || found != cudaDriverEntryPointSuccess) return nullptr;
  return reinterpret_cast<EncodeTiled>(function);
}

inline CUtensorMapDataType TensorMapType(DType type) {
  switch (type) {
    case DType::kBf16:
      return CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
    case DType::kFp16:
      return CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
    case DType::kFp32:
      break;
  }
  return CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
}

// A tensor of n dimensions, the innermost (contiguous) first, copied in boxes with the
// 128-byte swizzle. strides[i] is the distance in bytes of neighbours along dimension i + 1, a multiple
// of 16; base is aligned to 16.
template <int n>
Status EncodeTensorMap(CUtensorMap* map, DType type, const void* base, const uint64_t (&dims)[n],
                       const uint64_t (&strides)[n - 1], const uint32_t (&box)[n]) {
  static const EncodeTiled encode = FindEncodeTiled();
  if (encode == nullptr) return {Code::kDevice, "the CUDA driver has no cuTensorMapEncodeTiled"};
  cuuint64_t map_dims[n], map_strides[n - 1];
  cuuint32_t map_box[n], steps[n];
  for (int i = 0; i < n; ++i) map_dims[i] = dims[i], map_box[i] = box[i], steps[i] = 1;
  for (int i = 0; i + 1 < n; ++i) map_strides[i] = strides[i];
  const CUresult result =
      encode(map, TensorMapType(type), n, const_cast<void*>(base), map_dims, map_strides, map_box,
             steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
             CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result == CUDA_SUCCESS) return {};
  std::string message =
      "cuTensorMapEncodeTiled failed with code " + std::to_string(result) + " for dims";
  for (int i = 0; i < n; ++i) message.append(" ").append(std::to_string(dims[i]));
  message += ", strides";
  for (int i = 0; i + 1 < n; ++i) message.append(" ").append(std::to_string(strides[i]));
  return {Code::kInvalidArgument, std::move(message)};
}

}  // namespace deepencoder::kernels::sm90
