// The key loop of the Hopper kernel: a warpgroup's 64 query rows against all keys of their head.
//
// Thread layout: accumulators as in sm90/wgmma.cuh; a thread holds two rows, 0 (elements with i & 2
// == 0) and 1.
#pragma once

#include <utility>

#include "kernels/element.cuh"
#include "kernels/global_attention_sm90_plan.cuh"
#include "kernels/global_attention_sm90_turns.cuh"
#include "kernels/mma.cuh"
#include "kernels/sm90/mbarrier.cuh"
#include "kernels/sm90/wgmma.cuh"

namespace deepencoder::kernels::hopper_attention {

// One for each item and warpgroup. kCareful: the reference m follows the largest score, else the
// first tile sets it.
template <class P, bool kCareful>
class KeyLoop {
 public:
  using T = typename P::Type;

  // q: A operands, scaled by log2(e)/8. rel_w: in accumulator layout. row0, row1: rel_h of the two
  // rows, in the order in which the tiles come. Both terms are scaled by log2(e).
  __device__ __forceinline__ KeyLoop(unsigned char* smem, const uint32_t (&q)[16],
                                     const float (&rel_w)[P::grid / 2], const float* row0,
                                     const float* row1)
      : shared_(SharedOf<P>(smem)),
        low_(sm90::DescriptorLow(smem)),
        q_(q),
        rel_w_(rel_w),
        row0_(row0),
        row1_(row1) {}

  // phase: of the tiles' stages; turn: of what is loaded once an item.
  __device__ __forceinline__ void Run(int& phase, int turn) {
#pragma unroll
    for (float& x : o) x = 0.f;
    LoadRelH<0>(0);
    StartScores();
    Steps<true>(std::make_integer_sequence<int, P::stages>{}, 0, phase);
    int pairs;  // of tiles; a number the compiler cannot see, or it unrolls the whole loop
    asm volatile("mov.u32 %0, %1;" : "=r"(pairs) : "n"(P::key_tiles / 2));
#pragma unroll 1
    for (int i = P::stages / 2; i < pairs; i += P::stages / 2)
      Steps<false>(std::make_integer_sequence<int, P::stages>{}, i, phase);

    sm90::BarrierWait(&shared_.last_full, turn);
    sm90::Pin(o), sm90::Pin(p_[1]);
    sm90::MmaFence();
    IssueValues(P::v_last_at, p_[1]);
    sm90::MmaWait<0>();
    sm90::Pin(o);
    if constexpr (kOverlap) Release(P::stages - 1);
    if (Leader()) sm90::BarrierArrive(&shared_.last_empty);
  }

  float o[kHead / 2];        // sum of p v
  float l0 = 0.f, l1 = 0.f;  // the thread's part of sum of p

 private:
  static constexpr bool kOverlap = P::overlap;

  static __device__ __forceinline__ bool Leader() { return threadIdx.x % 32 == 0; }

  // The tiles from 2 * pair on, one in each stage.
  template <bool kStart, int... u>
  __device__ __forceinline__ void Steps(std::integer_sequence<int, u...>, int pair, int& phase) {
    (Step<u, (kStart && u == 0)>(pair, phase), ...);
    if constexpr (kOverlap) {  // the assembler wants nothing under way where the loop turns
      sm90::MmaWait<0>();
      sm90::Pin(o);
    }
    phase ^= 1;
  }

  // Tile j = 2 * pair + u in stage u; its scores have been started. Beside its exponentials run
  // tile j-1's value products; with kOverlap those may go on into the next step, and a stage is
  // released a step later.
  template <int u, bool kFirst>
  __device__ __forceinline__ void Step(int pair, int phase) {
    using namespace sm90;
    asm volatile(
        ""
        : "+r"(
            low_));  // descriptors are made anew, or the assembler keeps all in registers it lacks
    LoadRelH<u + 1>(pair);  // past the last tile: whatever shared memory holds there, unused
    BarrierWait(&shared_.full[u], phase);
    Pin(s_);
    if constexpr (!kFirst) {
      if constexpr (!kOverlap || kCareful) Pin(o);
      Pin(p_[1 - u % 2]);
    }
    MmaFence();
    Turns<P>::Await();
    IssueScores(P::k_at + u * P::tile_bytes);
    if constexpr (!kFirst) IssueValues(P::v_at + u * P::tile_bytes, p_[1 - u % 2]);
    MmaWait<kFirst || kCareful ? 0 : 1>();  // leaves under way: the value products just issued
    Pin(s_);
    Turns<P>::Pass();
    if constexpr (kCareful && !kFirst) Pin(o);
    if constexpr (kOverlap && !kFirst) Release((u + P::stages - 1) % P::stages);
    if constexpr (kFirst || kCareful) MoveReference<kFirst>();
    Exponentials(p_[u % 2]);
    if constexpr (!kFirst && !kOverlap) {
      MmaWait<0>();
      Pin(o);
    }
    if constexpr (kFirst && kOverlap) Pin(o);
    if constexpr (!kOverlap) Release(u);
    StartScores();
  }

  __device__ __forceinline__ void Release(int stage) {
    if (Leader()) sm90::BarrierArrive(&shared_.empty[stage]);
  }

  // Of tile 2 * pair + offset.
  template <int offset>
  __device__ __forceinline__ void LoadRelH(int pair) {
#pragma unroll
    for (int y = 0; y < P::grid_rows; ++y) {
      const int at = pair * P::grid_rows + P::ScratchAt(offset * P::grid_rows + y);
      h0_[y] = row0_[at], h1_[y] = row1_[at];
    }
  }

  // s = rel_w + (rel_h - m); the careful loop subtracts m when it knows it.
  __device__ __forceinline__ void StartScores() {
#pragma unroll
    for (int y = 0; y < P::grid_rows; ++y) {
      const float c0 = kCareful ? h0_[y] : h0_[y] - m0_, c1 = kCareful ? h1_[y] : h1_[y] - m1_;
#pragma unroll
      for (int e = 0; e < P::grid / 2; ++e)
        s_[y * (P::grid / 2) + e] = rel_w_[e] + (e & 2 ? c1 : c0);
    }
  }

  // s += q k^T
  __device__ __forceinline__ void IssueScores(int keys_at) {
#pragma unroll
    for (int k = 0; k < kHead / 16; ++k)
      sm90::GroupMma<T, P::keys, sm90::Order::kNk>::Issue(
          s_, &q_[4 * k], sm90::Descriptor(low_ + keys_at / 16 + 2 * k));
    sm90::MmaCommit();
  }

  // o += p v
  __device__ __forceinline__ void IssueValues(int values_at, const uint32_t* p) {
#pragma unroll
    for (int k = 0; k < P::keys / 16; ++k)
      sm90::GroupMma<T, kHead, sm90::Order::kKn>::Issue(
          o, &p[4 * k], sm90::Descriptor(low_ + values_at / 16 + 128 * k));
    sm90::MmaCommit();
  }

  // m = max(m, s) by rows, and all that was summed against the old m is scaled; s -= m.
  template <bool kFirst>
  __device__ __forceinline__ void MoveReference() {
    float n0 = s_[0], n1 = s_[2];
#pragma unroll
    for (int e = 0; e < P::keys / 2; e += 4) {
      n0 = fmaxf(n0, fmaxf(s_[e], s_[e + 1]));
      n1 = fmaxf(n1, fmaxf(s_[e + 2], s_[e + 3]));
    }
    n0 = QuadMax(n0), n1 = QuadMax(n1);
    if constexpr (kFirst) {
      if constexpr (!kCareful) {
        n0 += P::headroom + Foresight(row0_);
        n1 += P::headroom + Foresight(row1_);
      }
    } else {
      n0 = fmaxf(n0, m0_), n1 = fmaxf(n1, m1_);
      const float a0 = Exp2(m0_ - n0), a1 = Exp2(m1_ - n1);
      l0 *= a0, l1 *= a1;
#pragma unroll
      for (int e = 0; e < kHead / 2; ++e) o[e] *= e & 2 ? a1 : a0;
    }
    m0_ = n0, m1_ = n1;
#pragma unroll
    for (int e = 0; e < P::keys / 2; ++e) s_[e] -= e & 2 ? m1_ : m0_;
  }

  // Later tiles have other terms rel_h, all known: how far the largest is expected to carry the
  // scores out of P::reach. The guess may be too high; see P::least.
  __device__ __forceinline__ float Foresight(const float* row) {
    if constexpr (!P::is_half) return 0.f;
    float most = row[threadIdx.x % 4], here = row[P::ScratchAt(0)];
#pragma unroll
    for (int y = 4; y < P::grid; y += 4) most = fmaxf(most, row[y + threadIdx.x % 4]);
#pragma unroll
    for (int y = 1; y < P::grid_rows; ++y) here = fmaxf(here, row[P::ScratchAt(y)]);
    return fmaxf(QuadMax(most) - here - P::reach, 0.f);
  }

  // p = 2^s, rounded and packed; l its row sums, of what was not rounded.
  __device__ __forceinline__ void Exponentials(uint32_t* p) {
#pragma unroll
    for (int e = 0; e < P::keys / 2; e += 4) {
      const float a = Exp2(s_[e]), b = Exp2(s_[e + 1]), c = Exp2(s_[e + 2]), d = Exp2(s_[e + 3]);
      l0 += a, l1 += c;
      l0 += b, l1 += d;
      p[e / 2] = Element<T>::Pack(a, b), p[e / 2 + 1] = Element<T>::Pack(c, d);
    }
  }

  Shared<P>& shared_;
  uint32_t low_;  // descriptor of the start of shared memory
  const uint32_t (&q_)[16];
  const float (&rel_w_)[P::grid / 2];
  const float *const row0_, *const row1_;
  float s_[P::keys / 2];
  uint32_t p_[2][P::keys / 4];
  float m0_ = 0.f, m1_ = 0.f;
  float h0_[P::grid_rows], h1_[P::grid_rows];
};

}  // namespace deepencoder::kernels::hopper_attention
