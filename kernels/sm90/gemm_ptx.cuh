// What the dense-layer kernel needs beyond the other wrappers: products with both operands in shared
// memory, boxes that a cluster shares, barriers of a cluster.
#pragma once

#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "kernels/sm90/shared.cuh"

namespace deepencoder::kernels::sm90 {

// ---------------------------------------------------------------- copy engine
__device__ __forceinline__ void PrefetchTensorMap(const CUtensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}
__device__ __forceinline__ void BulkLoad3(void* dst, const CUtensorMap* map, uint64_t* bar, int c0,
                                          int c1, int c2) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      " [%0], [%1, {%3, %4, %5}], [%2];" ::"r"(SharedAddress(dst)),
      "l"(map), "r"(SharedAddress(bar)), "r"(c0), "r"(c1), "r"(c2)
      : "memory");
}
// To the same place in every block of the cluster that `blocks` has a bit for; each gets the bytes on its
// own barrier.
__device__ __forceinline__ void BulkLoad2Multicast(void* dst, const CUtensorMap* map, uint64_t* bar,
                                                   uint16_t blocks, int c0, int c1) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%0], [%1, {%4, %5}], [%2], %3;" ::"r"(SharedAddress(dst)),
      "l"(map), "r"(SharedAddress(bar)), "h"(blocks), "r"(c0), "r"(c1)
      : "memory");
}
// ---------------------------------------------------------------- cluster
__device__ __forceinline__ uint32_t ClusterRank() {
  uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
// All threads of all blocks of the cluster.
__device__ __forceinline__ void ClusterSync() {
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::
                   : "memory");
}
// Arrives on the barrier that lies where `bar` lies, in block `rank` of the cluster. Orders nothing but
// what a wait on products has ordered already: releasing at the cluster's scope would cost a full memory
// barrier.
__device__ __forceinline__ void BarrierArriveAt(uint64_t* bar, uint32_t rank) {
  asm volatile(
      "{\n"
      ".reg .b32 remote;\n"
      "mapa.shared::cluster.u32 remote, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [remote];\n"
      "}\n" ::"r"(SharedAddress(bar)),
      "r"(rank)
      : "memory");
}

// ---------------------------------------------------------------- products
// D[64][n] (+)= A[64][16] * B[n][16]^T, both described in shared memory (wgmma.cuh: Descriptor), D laid
// out as there. D is overwritten if `accumulate` is 0.
template <typename T, int n>
struct GroupMmaShared;

#define SM90_D16(d, i)                                                                        \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), \
      "+f"(d[i + 6]), "+f"(d[i + 7]), "+f"(d[i + 8]), "+f"(d[i + 9]), "+f"(d[i + 10]),        \
      "+f"(d[i + 11]), "+f"(d[i + 12]), "+f"(d[i + 13]), "+f"(d[i + 14]), "+f"(d[i + 15])
#define SM90_D32(d) SM90_D16(d, 0), SM90_D16(d, 16)
#define SM90_D64(d) SM90_D32(d), SM90_D16(d, 32), SM90_D16(d, 48)
#define SM90_D96(d) SM90_D64(d), SM90_D16(d, 64), SM90_D16(d, 80)
#define SM90_D128(d) SM90_D96(d), SM90_D16(d, 96), SM90_D16(d, 112)
#define SM90_N32                                          \
  "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15" \
  ",%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define SM90_N64                                                     \
  SM90_N32                                                           \
  ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47" \
  ",%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define SM90_N96                                                     \
  SM90_N64                                                           \
  ",%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79" \
  ",%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95"
#define SM90_N128                                                                \
  SM90_N96                                                                       \
  ",%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111" \
  ",%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127"

// Behind the accumulators come the descriptors of A and B and `accumulate`.
#define SM90_MMA(T, type, n, names, operands, a, b, accumulate)                          \
  template <>                                                                            \
  struct GroupMmaShared<T, n> {                                                          \
    static __device__ __forceinline__ void Issue(float (&d)[n / 2], uint64_t a_tile,     \
                                                 uint64_t b_tile, int keep) {            \
      asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " accumulate                        \
                   ", 0;\nwgmma.mma_async.sync.aligned.m64n" #n "k16.f32." type "." type \
                   " {" names "}, " a ", " b ", p, 1, 1, 0, 0;\n}\n"                     \
                   : operands(d)                                                         \
                   : "l"(a_tile), "l"(b_tile), "r"(keep));                               \
    }                                                                                    \
  }
#define SM90_MMA_TYPE(T, type)                                     \
  SM90_MMA(T, type, 64, SM90_N32, SM90_D32, "%32", "%33", "%34");  \
  SM90_MMA(T, type, 128, SM90_N64, SM90_D64, "%64", "%65", "%66"); \
  SM90_MMA(T, type, 192, SM90_N96, SM90_D96, "%96", "%97", "%98"); \
  SM90_MMA(T, type, 256, SM90_N128, SM90_D128, "%128", "%129", "%130")

SM90_MMA_TYPE(__nv_bfloat16, "bf16");
SM90_MMA_TYPE(__half, "f16");

#undef SM90_MMA_TYPE
#undef SM90_MMA
#undef SM90_N128
#undef SM90_N96
#undef SM90_N64
#undef SM90_N32
#undef SM90_D128
#undef SM90_D96
#undef SM90_D64
#undef SM90_D32
#undef SM90_D16

}  // namespace deepencoder::kernels::sm90
