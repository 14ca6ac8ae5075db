// Shared memory as Hopper's engines address it.
#pragma once

#include <cstdint>

#include "kernels/mma.cuh"

namespace deepencoder::kernels::sm90 {

// Byte offset of 16-byte chunk `chunk` of 128-byte row `row` in a tile that the copy engine wrote
// with the 128-byte swizzle (tile base aligned to 1024).
__device__ __forceinline__ uint32_t Swizzle128(uint32_t row, uint32_t chunk) {
  return row * 128 + ((chunk ^ (row & 7)) << 4);
}

// The reverse of LoadMatrices (kernels/mma.cuh).
__device__ __forceinline__ void StoreMatrix4(uint32_t address, uint32_t r0, uint32_t r1,
                                             uint32_t r2, uint32_t r3) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address),
               "r"(r0), "r"(r1), "r"(r2), "r"(r3)
               : "memory");
}

// Makes ordinary shared-memory writes visible to the copy engine and the matrix units.
__device__ __forceinline__ void AsyncProxyFence() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

}  // namespace deepencoder::kernels::sm90
