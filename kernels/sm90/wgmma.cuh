// Products of a warpgroup (wgmma): D[64][n] += A[64][16] * B[16][n], A in registers, B in shared
// memory, 16-bit elements in, fp32 out. Asynchronous: fence, issue, commit, wait.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "kernels/sm90/shared.cuh"

namespace deepencoder::kernels::sm90 {

// ---------------------------------------------------------------- order
__device__ __forceinline__ void MmaFence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void MmaCommit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
// Until at most `pending` of the committed groups are under way.
template <int pending>
__device__ __forceinline__ void MmaWait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(pending) : "memory");
}

// Names registers for accumulators whose first product overwrites them (Issue<false>).
template <int n>
__device__ __forceinline__ void Claim(float (&r)[n]) {
#pragma unroll
  for (int i = 0; i < n; ++i) asm volatile("" : "=f"(r[i]));
}

// Keeps the compiler from moving reads or writes of `r` across this point: it does not know that a
// product under way reads and writes registers.
template <int n>
__device__ __forceinline__ void Pin(float (&r)[n]) {
#pragma unroll
  for (int i = 0; i < n; ++i) asm volatile("" : "+f"(r[i])::"memory");
}
template <int n>
__device__ __forceinline__ void Pin(uint32_t (&r)[n]) {
#pragma unroll
  for (int i = 0; i < n; ++i) asm volatile("" : "+r"(r[i])::"memory");
}

// ---------------------------------------------------------------- B in shared memory
// Descriptor of rows of 64 elements (128 bytes) with the 128-byte swizzle, groups of 8 rows 1024
// bytes apart. The same word serves both orders:
//   B stored [n][k] (k contiguous): 16 more k = +32 bytes = +2 in the descriptor
//   B stored [k][n] (n contiguous): 16 more k = +16 rows  = +128 in the descriptor
// Only the low word depends on the address (in 16-byte units): add to it, not to the whole.
__device__ __forceinline__ uint32_t DescriptorLow(const void* tile) {
  return (SharedAddress(tile) >> 4) | (1u << 16);
}
__device__ __forceinline__ uint64_t Descriptor(uint32_t low) {
  return (static_cast<uint64_t>((1u << 30) | 64u) << 32) | low;
}

enum class Order { kNk = 0, kKn = 1 };

// Thread t of the warpgroup, w = t/32, r = t%32/4, q = t%4, holds of D in d[4*b + i]:
//   row 16*w + r + (i & 2 ? 8 : 0), column 8*b + 2*q + (i & 1)
// and of A in a[0..3]: rows r, r+8, r, r+8 (of 16*w), columns 2q..2q+1 for the first two,
// 8+2q..8+2q+1 for the others. So two neighbouring blocks of D, packed, are an A: D of one product
// is A of the next.
template <typename T, int n, Order order>
struct GroupMma;

#define SM90_D16(d)                                                                               \
  "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), \
      "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]),    \
      "+f"(d[15])
#define SM90_D4(d, i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define SM90_D8(d, i) SM90_D4(d, i), SM90_D4(d, i + 4)
#define SM90_D20(d) SM90_D16(d), SM90_D4(d, 16)
#define SM90_D24(d) SM90_D16(d), SM90_D8(d, 16)
#define SM90_D32(d) SM90_D24(d), SM90_D8(d, 24)
#define SM90_D40(d) SM90_D32(d), SM90_D8(d, 32)
#define SM90_D48(d) SM90_D40(d), SM90_D8(d, 40)
#define SM90_N16 "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15"
#define SM90_N20 SM90_N16 ",%16,%17,%18,%19"
#define SM90_N24 SM90_N20 ",%20,%21,%22,%23"
#define SM90_N32 SM90_N24 ",%24,%25,%26,%27,%28,%29,%30,%31"
#define SM90_N40 SM90_N32 ",%32,%33,%34,%35,%36,%37,%38,%39"
#define SM90_N48 SM90_N40 ",%40,%41,%42,%43,%44,%45,%46,%47"

// The operands behind the accumulators are numbered on from them: n/2 .. n/2+3 are A, n/2+4 the
// descriptor, n/2+5 whether to add. Issue<false>: D = A * B.
#define SM90_MMA(T, type, n, names, operands, order, transposed, a0, a1, a2, a3, desc, add)       \
  template <>                                                                                     \
  struct GroupMma<T, n, order> {                                                                  \
    template <bool kAdd = true>                                                                   \
    static __device__ __forceinline__ void Issue(float (&d)[n / 2], const uint32_t* a,            \
                                                 uint64_t b) {                                    \
      asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " add                                        \
                   ", 0;\nwgmma.mma_async.sync.aligned.m64n" #n "k16.f32." type "." type          \
                   " {" names "}, {" a0 "," a1 "," a2 "," a3 "}, " desc ", p, 1, 1, " #transposed \
                   ";\n}\n"                                                                       \
                   : operands(d)                                                                  \
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(int{kAdd}));         \
    }                                                                                             \
  }
#define SM90_MMA_TYPE(T, type)                                                                \
  SM90_MMA(T, type, 32, SM90_N16, SM90_D16, Order::kNk, 0, "%16", "%17", "%18", "%19", "%20", \
           "%21");                                                                            \
  SM90_MMA(T, type, 40, SM90_N20, SM90_D20, Order::kNk, 0, "%20", "%21", "%22", "%23", "%24", \
           "%25");                                                                            \
  SM90_MMA(T, type, 48, SM90_N24, SM90_D24, Order::kNk, 0, "%24", "%25", "%26", "%27", "%28", \
           "%29");                                                                            \
  SM90_MMA(T, type, 64, SM90_N32, SM90_D32, Order::kNk, 0, "%32", "%33", "%34", "%35", "%36", \
           "%37");                                                                            \
  SM90_MMA(T, type, 64, SM90_N32, SM90_D32, Order::kKn, 1, "%32", "%33", "%34", "%35", "%36", \
           "%37");                                                                            \
  SM90_MMA(T, type, 80, SM90_N40, SM90_D40, Order::kNk, 0, "%40", "%41", "%42", "%43", "%44", \
           "%45");                                                                            \
  SM90_MMA(T, type, 96, SM90_N48, SM90_D48, Order::kNk, 0, "%48", "%49", "%50", "%51", "%52", "%53")

SM90_MMA_TYPE(__nv_bfloat16, "bf16");
SM90_MMA_TYPE(__half, "f16");

#undef SM90_MMA_TYPE
#undef SM90_MMA
#undef SM90_N48
#undef SM90_N40
#undef SM90_N32
#undef SM90_N24
#undef SM90_N20
#undef SM90_N16
#undef SM90_D48
#undef SM90_D40
#undef SM90_D32
#undef SM90_D24
#undef SM90_D20
#undef SM90_D8
#undef SM90_D4
#undef SM90_D16

}  // namespace deepencoder::kernels::sm90
