// A consumer warp of the Hopper kernel: of each item, prologue (q and the bias terms), key loop,
// epilogue.
#pragma once

#include "kernels/element.cuh"
#include "kernels/global_attention_sm90_key_loop.cuh"
#include "kernels/global_attention_sm90_plan.cuh"
#include "kernels/global_attention_sm90_terms.cuh"
#include "kernels/global_attention_sm90_turns.cuh"
#include "kernels/global_attention_sm90_verdict.cuh"
#include "kernels/mma.cuh"
#include "kernels/sm90/bulk_copy.cuh"
#include "kernels/sm90/mbarrier.cuh"

namespace deepencoder::kernels::hopper_attention {

template <class P>
class Consumer {
 public:
  using T = typename P::Type;

  __device__ __forceinline__ Consumer(const Params& params, unsigned char* smem)
      : params_(params),
        smem_(smem),
        shared_(SharedOf<P>(smem)),
        warp_(__shfl_sync(~0u, threadIdx.x / 32, 0)),
        lane_(threadIdx.x % 32) {}

  __device__ __forceinline__ void Run() {
    Turns<P>::Begin();
    sm90::BarrierWait(&shared_.tables_full, 0);
    ForEachItem(
        params_.items, [&](int index, int bit) { Attend<false>(index, bit); },
        [&](int parity) {
          const uint32_t failed = AwaitVerdicts<P>(shared_, parity);
          // What the careful loop writes must not be overtaken by what the quick one wrote there.
          if (failed != 0 && lane_ == 0) sm90::BulkStoreWait();
          return failed;
        },
        [&](int index) { Attend<true>(index, 0); });
    Turns<P>::End();
    if (lane_ == 0) sm90::BulkStoreWait();
  }

 private:
  template <bool kCareful>
  __device__ __forceinline__ void Attend(int index, int bit) {
    const Item item = Decode<P>(index, params_.heads);
    if (item.tile * P::rows + 64 * Group() >= P::tokens) {
      Skip();
      return;
    }
    uint32_t q[16];
    float rel_w[P::grid / 2];
    LoadQuery(q);
    BiasTerms(item, q, rel_w);
    Scale(q);
    KeyLoop<P, kCareful> loop(smem_, q, rel_w, Row(0), Row(1));
    loop.Run(phase_, turn_);
    turn_ ^= 1;

    asm volatile("" : "+r"(index));  // decoded anew rather than kept in registers over the key loop
    const Item done = Decode<P>(index, params_.heads);
    const float sum0 = QuadSum(loop.l0), sum1 = QuadSum(loop.l1);
    if constexpr (kCareful) {
      CountRepeated();
    } else {
      // Infinite sums and NaN are not good either.
      const bool good =
          loop.l0 < P::limit && loop.l1 < P::limit && sum0 >= P::least && sum1 >= P::least;
      GiveVerdict<P>(shared_, !good, bit);
    }
    Write(done, loop.o, 1.f / sum0, 1.f / sum1);
  }

  // A head's last query tile may have no rows for this group: its data pass by.
  __device__ __forceinline__ void Skip() {
    sm90::BarrierWait(&shared_.q_full[Group()], turn_);
    if (lane_ == 0) sm90::BarrierArrive(&shared_.q_empty[Group()]);
#pragma unroll 1
    for (int j = 0; j < P::key_tiles; j += P::stages, phase_ ^= 1) {
      for (int u = 0; u < P::stages; ++u) {
        sm90::BarrierWait(&shared_.full[u], phase_);
        Turns<P>::Await(), Turns<P>::Pass();
        if (lane_ == 0) sm90::BarrierArrive(&shared_.empty[u]);
      }
    }
    sm90::BarrierWait(&shared_.last_full, turn_);
    if (lane_ == 0) sm90::BarrierArrive(&shared_.last_empty);
    turn_ ^= 1;
  }

  // The warp's 16 rows of q as A operands.
  __device__ __forceinline__ void LoadQuery(uint32_t (&q)[16]) {
    using namespace sm90;
    BarrierWait(&shared_.q_full[Group()], turn_);
    const uint32_t tile = SharedAddress(smem_ + P::q_at + Group() * P::query_bytes);
    const uint32_t row = 16 * (warp_ % 4) + lane_ % 8 + (lane_ & 8);
#pragma unroll
    for (int k = 0; k < kHead / 16; ++k) {
      uint32_t a[4];
      LoadMatrices(a, tile + Swizzle128(row, 2 * k + lane_ / 16));
#pragma unroll
      for (int i = 0; i < 4; ++i) q[4 * k + i] = a[i];
    }
    __syncwarp();
    if (lane_ == 0) BarrierArrive(&shared_.q_empty[Group()]);
  }

  // rel_w to registers in accumulator layout; rel_h stays in the scratch, in the order in which the
  // tiles come. Products run while those before them are stored.
  __device__ __forceinline__ void BiasTerms(const Item& item, const uint32_t (&q)[16],
                                            float (&rel_w)[P::grid / 2]) {
    using namespace sm90;
    const unsigned char* const across = smem_ + P::tables_at;
    const unsigned char* const down = across + P::table_bytes;
    const int n = FirstRow(item), first = FirstKeyTile<P>(item) * P::grid_rows;
    const TermRows columns(
        n, [](int i) { return i % P::grid; }, Row(0), Row(1));
    const TermRows rows(
        n, [](int i) { return i / P::grid; }, Row(0), Row(1));
    float low[P::grid / 2], high[P::grid / 2], all[P::grid / 2];
    Claim(low), Claim(high);
    if constexpr (P::group_in_row) Claim(all);
    MmaFence();
    IssueTerm<P>(low, q, across);
    IssueTerm<P>(high, q, across + P::grid * 128);
    // Where all queries have one grid row, g rows of the table do.
    if constexpr (P::group_in_row) IssueTerm<P>(all, q, down + rows.at * 128);
    if (lane_ == 0) BulkStoreWaitRead();  // the previous item's output has left the scratch
    __syncwarp();
    MmaWait<P::group_in_row ? 2 : 1>();
    Pin(low);
    StoreTerm<P>(low, columns, 0, 0);
    MmaWait<P::group_in_row ? 1 : 0>();
    Pin(high);
    StoreTerm<P>(high, columns, P::grid, 0);
    __syncwarp();
    if constexpr (!P::group_in_row) {
      Claim(low), Claim(high);
      MmaFence();
      IssueTerm<P>(low, q, down);
      IssueTerm<P>(high, q, down + P::grid * 128);
    }
#pragma unroll
    for (int e = 0; e < P::grid / 2; ++e)
      rel_w[e] = Row((e & 2) / 2)[P::ScratchAt(e / 4 * 8 + 2 * (lane_ % 4) + (e & 1))];
    __syncwarp();
    if constexpr (P::group_in_row) {
      MmaWait<0>();
      Pin(all);
      StoreTerm<P>(all, rows, rows.at, first);
    } else {
      MmaWait<1>();
      Pin(low);
      StoreTerm<P>(low, rows, 0, first);
      MmaWait<0>();
      Pin(high);
      StoreTerm<P>(high, rows, P::grid, first);
    }
    __syncwarp();
  }

  static __device__ __forceinline__ void Scale(uint32_t (&q)[16]) {
#pragma unroll
    for (uint32_t& pair : q) {
      const float2 f = Element<T>::Unpack(pair);
      pair = Element<T>::Pack(f.x * (kLog2e / 8), f.y * (kLog2e / 8));
    }
  }

  // out = o / l: 16 rows a warp to shared memory, one bulk store.
  __device__ __forceinline__ void Write(const Item& item, const float (&o)[kHead / 2], float scale0,
                                        float scale1) {
    __syncwarp();
    const auto pair = [&](int e) {
      const float scale = e & 2 ? scale1 : scale0;
      return Element<T>::Pack(o[e] * scale, o[e + 1] * scale);
    };
    const uint32_t stage = SharedAddress(Scratch());
#pragma unroll
    for (int b = 0; b < kHead / 8; b += 2)
      sm90::StoreMatrix4(stage + sm90::Swizzle128(lane_ % 16, b + lane_ / 16), pair(4 * b),
                         pair(4 * b + 2), pair(4 * b + 4), pair(4 * b + 6));
    sm90::AsyncProxyFence();
    __syncwarp();
    if (lane_ == 0) {
      sm90::BulkStore4(&params_.out, Scratch(), 0, item.head, FirstRow(item), item.batch);
      sm90::BulkStoreCommit();
    }
  }

  __device__ __forceinline__ void CountRepeated() {
    if (lane_ == 0 && params_.repeated_rows != nullptr) atomicAdd(params_.repeated_rows, 16ull);
  }

  __device__ __forceinline__ int Group() const { return warp_ / 4; }
  __device__ __forceinline__ int FirstRow(const Item& item) const {
    return item.tile * P::rows + 64 * Group() + 16 * (warp_ % 4);
  }
  __device__ __forceinline__ float* Scratch() const {
    return reinterpret_cast<float*>(smem_ + P::scratch_at + warp_ * P::scratch_bytes);
  }
  // Of the warp's scratch, for the thread's row 0 or 1.
  __device__ __forceinline__ float* Row(int which) const {
    return Scratch() + (lane_ / 4 + 8 * which) * P::scratch_stride;
  }

  const Params& params_;
  unsigned char* const smem_;
  Shared<P>& shared_;
  const int warp_, lane_;
  int phase_ = 0;  // of the key and value tiles
  int turn_ = 0;   // of what is loaded once an item
};

}  // namespace deepencoder::kernels::hopper_attention
