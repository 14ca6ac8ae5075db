// Eight elements at a time, through 16-byte accesses, as floats. T is __nv_bfloat16, __half or
// float.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "encoder/base/dtype.h"

namespace deepencoder::kernels {

inline constexpr int kVector = 8;  // elements a thread handles at a time

template <typename T>
struct Element;

template <>
struct Element<__nv_bfloat16> {
  static constexpr DType kType = DType::kBf16;
  static __device__ __forceinline__ float2 Unpack(uint32_t bits) {
    return __bfloat1622float2(reinterpret_cast<const __nv_bfloat162&>(bits));
  }
  static __device__ __forceinline__ uint32_t Pack(float low, float high) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    return reinterpret_cast<const uint32_t&>(pair);
  }
};

template <>
struct Element<__half> {
  static constexpr DType kType = DType::kFp16;
  static __device__ __forceinline__ float2 Unpack(uint32_t bits) {
    return __half22float2(reinterpret_cast<const __half2&>(bits));
  }
  static __device__ __forceinline__ uint32_t Pack(float low, float high) {
    const __half2 pair = __floats2half2_rn(low, high);
    return reinterpret_cast<const uint32_t&>(pair);
  }
};

// `at` must be aligned to 16 bytes.
template <typename T>
__device__ __forceinline__ void Load8(const T* at, float (&to)[kVector]) {
  const uint4 bits = *reinterpret_cast<const uint4*>(at);
  const uint32_t words[4] = {bits.x, bits.y, bits.z, bits.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 pair = Element<T>::Unpack(words[i]);
    to[2 * i] = pair.x, to[2 * i + 1] = pair.y;
  }
}
template <>
__device__ __forceinline__ void Load8<float>(const float* at, float (&to)[kVector]) {
  const float4 low = reinterpret_cast<const float4*>(at)[0];
  const float4 high = reinterpret_cast<const float4*>(at)[1];
  to[0] = low.x, to[1] = low.y, to[2] = low.z, to[3] = low.w;
  to[4] = high.x, to[5] = high.y, to[6] = high.z, to[7] = high.w;
}

template <typename T>
__device__ __forceinline__ void Store8(T* at, const float (&from)[kVector]) {
  *reinterpret_cast<uint4*>(at) =
      make_uint4(Element<T>::Pack(from[0], from[1]), Element<T>::Pack(from[2], from[3]),
                 Element<T>::Pack(from[4], from[5]), Element<T>::Pack(from[6], from[7]));
}
template <>
__device__ __forceinline__ void Store8<float>(float* at, const float (&from)[kVector]) {
  reinterpret_cast<float4*>(at)[0] = make_float4(from[0], from[1], from[2], from[3]);
  reinterpret_cast<float4*>(at)[1] = make_float4(from[4], from[5], from[6], from[7]);
}

__device__ __forceinline__ float WarpSum(float value) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(~0u, value, step);
  return value;
}

}  // namespace deepencoder::kernels
