// The copy engine (TMA): boxes of a tensor to shared memory and back. Coordinates are in elements,
// the innermost dimension first; what lies outside the tensor is read as zero and not written.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "kernels/sm90/shared.cuh"

namespace deepencoder::kernels::sm90 {

__device__ __forceinline__ void BulkLoad2(void* dst, const CUtensorMap* map, uint64_t* bar, int c0,
                                          int c1) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      " [%0], [%1, {%3, %4}], [%2];" ::"r"(SharedAddress(dst)),
      "l"(map), "r"(SharedAddress(bar)), "r"(c0), "r"(c1)
      : "memory");
}
__device__ __forceinline__ void BulkLoad4(void* dst, const CUtensorMap* map, uint64_t* bar, int c0,
                                          int c1, int c2, int c3) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      " [%0], [%1, {%3, %4, %5, %6}], [%2];" ::"r"(SharedAddress(dst)),
      "l"(map), "r"(SharedAddress(bar)), "r"(c0), "r"(c1), "r"(c2), "r"(c3)
      : "memory");
}
__device__ __forceinline__ void BulkStore4(const CUtensorMap* map, const void* src, int c0, int c1,
                                           int c2, int c3) {
  asm volatile(
      "cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4, %5}], [%1];" ::
          "l"(map),
      "r"(SharedAddress(src)), "r"(c0), "r"(c1), "r"(c2), "r"(c3)
      : "memory");
}
__device__ __forceinline__ void BulkStoreCommit() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
// Until this thread's committed stores have read their shared memory.
__device__ __forceinline__ void BulkStoreWaitRead() {
  asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}
// Until they are complete.
__device__ __forceinline__ void BulkStoreWait() {
  asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

}  // namespace deepencoder::kernels::sm90
