// The producer of the Hopper kernel: one thread that keeps the copy engine ahead of the consumers.
#pragma once

#include "kernels/global_attention_sm90_plan.cuh"
#include "kernels/global_attention_sm90_verdict.cuh"
#include "kernels/sm90/bulk_copy.cuh"
#include "kernels/sm90/mbarrier.cuh"

namespace deepencoder::kernels::hopper_attention {

template <class P>
class Producer {
 public:
  __device__ __forceinline__ Producer(const Params& params, unsigned char* smem)
      : params_(params), smem_(smem), shared_(SharedOf<P>(smem)) {}

  // Once a block, by any one thread, before Run.
  __device__ __forceinline__ void LoadTables() {
    unsigned char* const tables = smem_ + P::tables_at;
    sm90::BarrierExpect(&shared_.tables_full, 2 * P::table_bytes);
    sm90::BulkLoad2(tables, &params_.rel_w, &shared_.tables_full, 0, 0);
    sm90::BulkLoad2(tables + P::table_bytes, &params_.rel_h, &shared_.tables_full, 0, 0);
  }

  __device__ __forceinline__ void Run() {
    ForEachItem(
        params_.items, [&](int index, int) { LoadItem(index); },
        [&](int parity) { return CollectVerdicts<P>(shared_, parity); },
        [&](int index) { LoadItem(index); });
  }

 private:
  // Queries, then the key tiles in a circle from the first, each with the values of the one before.
  __device__ __forceinline__ void LoadItem(int index) {
    const Item item = Decode<P>(index, params_.heads);
    for (int g = 0; g < P::groups; ++g) {
      sm90::BarrierWait(&shared_.q_empty[g], turn_ ^ 1);
      sm90::BarrierExpect(&shared_.q_full[g], P::query_bytes);
      sm90::BulkLoad4(smem_ + P::q_at + g * P::query_bytes, &params_.query, &shared_.q_full[g], 0,
                      item.head, item.tile * P::rows + 64 * g, item.batch);
    }
    int tile = FirstKeyTile<P>(item), before = 0;
    for (int j = 0; j < P::key_tiles; ++j) {
      uint64_t* const full = &shared_.full[stage_];
      sm90::BarrierWait(&shared_.empty[stage_], phase_ ^ 1);
      sm90::BarrierExpect(full, j == 0 ? P::tile_bytes : 2 * P::tile_bytes);
      LoadTile(P::k_at + stage_ * P::tile_bytes, params_.key, full, item, tile);
      if (j > 0) LoadTile(P::v_at + stage_ * P::tile_bytes, params_.value, full, item, before);
      if (++stage_ == P::stages) stage_ = 0, phase_ ^= 1;
      before = tile;
      if (++tile == P::key_tiles) tile = 0;
    }
    sm90::BarrierWait(&shared_.last_empty, turn_ ^ 1);
    sm90::BarrierExpect(&shared_.last_full, P::tile_bytes);
    LoadTile(P::v_last_at, params_.value, &shared_.last_full, item, before);
    turn_ ^= 1;
  }

  __device__ __forceinline__ void LoadTile(int at, const CUtensorMap& map, uint64_t* full,
                                           const Item& item, int tile) {
    sm90::BulkLoad4(smem_ + at, &map, full, 0, item.head, tile * P::keys, item.batch);
  }

  const Params& params_;
  unsigned char* const smem_;
  Shared<P>& shared_;
  int stage_ = 0, phase_ = 0;  // of the key and value tiles
  int turn_ = 0;               // of what is loaded once an item
};

}  // namespace deepencoder::kernels::hopper_attention
