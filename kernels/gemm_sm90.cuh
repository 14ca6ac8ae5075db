// y = epilogue(x W^T + bias) (+ residual) on Hopper.
//
// A persistent block computes tiles of m x n of y one after another, n fastest: all blocks then read
// the same few rows of x, and W (at most 9 MB) stays in L2.
//
//   producer warp      x [m][64] and W [n][64] of each step of k to a ring of stages (TMA, 128-byte
//                      swizzle); in a cluster each block loads its part of W for all blocks
//   consumer groups    acc += x W^T (wgmma, both operands in shared memory), then bias, activation,
//                      residual in fp32, and one rounding; on each tile together or in turns (Consumers)
//
// While consumers work on their epilogue the producer fills the stages with the next tile.
//
// In an epilogue each warp is alone with its 16 rows, 128 bytes of each at a time: through a box of its own
// in shared memory they turn from the accumulator's layout into rows, and go to global memory (and the
// residual comes from there) 128 bytes a row at once. Stores by the copy engine were slower: a box could not
// be used again before the engine had read it, some 700 cycles later.
#pragma once

#include <cuda_runtime.h>

#include "kernels/element.cuh"
#include "kernels/gemm_sm90_plan.h"
#include "kernels/launch.cuh"
#include "kernels/linear_activation.cuh"
#include "kernels/sm90/bulk_copy.cuh"
#include "kernels/sm90/gemm_ptx.cuh"
#include "kernels/sm90/mbarrier.cuh"
#include "kernels/sm90/registers.cuh"
#include "kernels/sm90/wgmma.cuh"

namespace deepencoder::kernels::gemm_sm90 {

// ---------------------------------------------------------------- shared memory
template <typename T, int tiling>
struct Layout {
  static constexpr Tiling kTiling = kTilings[tiling];
  T a[kTiling.stages][kTiling.rows * kTileK];
  T b[kTiling.stages][kTiling.columns * kTileK];
  unsigned char store[kTiling.consumers() * 4][kTiling.boxes][kChunkRows * kChunkBytes];
  uint64_t full[kTiling.stages];   // one arrival and the bytes of both tiles
  uint64_t empty[kTiling.stages];  // an arrival of each reader of each block of the cluster
  uint64_t turn[2];                // in turns: an arrival of each warp of the other consumer
};

// Where the ring stands.
template <int stages>
struct Ring {
  int stage = 0;
  uint32_t phase = 0;
  __device__ __forceinline__ void Advance() {
    if (++stage == stages) stage = 0, phase ^= 1;
  }
  __device__ __forceinline__ void Advance(int steps) {
    const int to = stage + steps;
    stage = to % stages, phase ^= to / stages & 1;
  }
};

// ---------------------------------------------------------------- tiles
struct Place {
  int row;  // within the group
  int column;
  int group;
};

template <int tiling>
__device__ __forceinline__ Place PlaceOf(int tile, int rank, const Params& p) {
  constexpr Tiling kTiling = kTilings[tiling];
  const int row_tile = tile / p.column_tiles;
  const int group = row_tile / p.row_tiles;
  return {((row_tile - group * p.row_tiles) * kTiling.cluster + rank) * kTiling.rows,
          (tile - row_tile * p.column_tiles) * kTiling.columns, group};
}

// ---------------------------------------------------------------- producer: one thread
template <typename T, int tiling>
class Producer {
 public:
  static constexpr Tiling kTiling = kTilings[tiling];

  __device__ __forceinline__ Producer(Layout<T, tiling>& shared, const CUtensorMap* x,
                                      const CUtensorMap* x2, const CUtensorMap* weight, int rank,
                                      const Params& p)
      : shared_(shared), x_(x), x2_(x2), weight_(weight), rank_(rank), p_(p) {}

  __device__ __forceinline__ void Run() {
    const int clusters = gridDim.x / kTiling.cluster;
    int tile = blockIdx.x / kTiling.cluster;
    // No kernel writes the weights: those of the first steps are on their way while the last kernel still runs.
    const int early = tile < p_.tiles ? p_.early_steps : 0;
    const Place first = PlaceOf<tiling>(tile, rank_, p_);
    for (int step = 0; step < early; ++step) LoadWeights(step, first, step);
    WaitForInputs();
    Ring<kTiling.stages> ring;
    for (int begun = early; tile < p_.tiles; tile += clusters, begun = 0) {
      const Place at = PlaceOf<tiling>(tile, rank_, p_);
      for (int step = 0; step < p_.k_steps; ++step) {
        sm90::BarrierWait(&shared_.empty[ring.stage], ring.phase ^ 1);
        if (step >= begun) LoadWeights(ring.stage, at, step);
        LoadRows(ring.stage, at, step);
        ring.Advance();
      }
    }
  }

 private:
  static constexpr int kPart = kTiling.columns / kTiling.cluster;  // rows of W that a block loads

  __device__ __forceinline__ bool InFirst(int step) const { return step < p_.first_k_steps; }
  // Column of the operand that the step belongs to.
  __device__ __forceinline__ int ColumnOf(int step) const {
    return (InFirst(step) ? step : step - p_.first_k_steps) * kTileK;
  }

  // A block's part of W, for all blocks of the cluster; and says how much the stage will hold.
  __device__ __forceinline__ void LoadWeights(int stage, const Place& at, int step) {
    uint64_t* const full = &shared_.full[stage];
    sm90::BarrierExpect(full, kTiling.a_bytes() + kTiling.b_bytes());
    const int k = InFirst(step) ? ColumnOf(step) : p_.second_k + ColumnOf(step);
    T* const b = shared_.b[stage] + rank_ * kPart * kTileK;
    if constexpr (kTiling.cluster == 1) {
      sm90::BulkLoad2(b, weight_, full, k, at.column);
    } else {
      sm90::BulkLoad2Multicast(b, weight_, full, (1u << kTiling.cluster) - 1, k,
                               at.column + rank_ * kPart);
    }
  }
  __device__ __forceinline__ void LoadRows(int stage, const Place& at, int step) {
    sm90::BulkLoad3(shared_.a[stage], InFirst(step) ? x_ : x2_, &shared_.full[stage],
                    ColumnOf(step), at.row, at.group);
  }

  Layout<T, tiling>& shared_;
  const CUtensorMap *const x_, *const x2_, *const weight_;
  const int rank_;
  const Params& p_;
};

// ---------------------------------------------------------------- epilogue
// One chunk is 16 rows of y and 128 bytes of each. A warp holds it in one of two layouts:
//   accumulator  for each block of 8 columns, columns 2q and 2q+1 of rows r and r+8 (wgmma.cuh)
//   row          lane l has 16 bytes, number l%8, of rows l/8 + 4i: what global memory likes
// and turns one into the other through a box in shared memory.
template <typename Y>
struct Chunk {
  static constexpr int kColumns = kChunkBytes / sizeof(Y);
  static constexpr int kBlocks = kColumns / 8;
  static constexpr int kValues = kBlocks * 4;
  static constexpr int kLaneRows = kChunkRows / 4;
};

// The boxes' swizzles: each access of a warp touches every bank equally often.
template <typename Y>
__device__ __forceinline__ uint32_t BoxOffset(int row, int chunk16) {
  if constexpr (sizeof(Y) == 2) return sm90::Swizzle128(row, chunk16);
  return row * kChunkBytes + ((chunk16 ^ row % 4 * 2) << 4);
}

// Accumulator layout to box.
template <typename Y>
__device__ __forceinline__ void WriteBox(const float* values, unsigned char* box, int lane) {
  if constexpr (sizeof(Y) == 2) {
    // Lane l gives row l%8 (+8) of block b (+1) to stmatrix.
    const uint32_t base = SharedAddress(box);
#pragma unroll
    for (int b = 0; b < Chunk<Y>::kBlocks; b += 2) {
      const float* const v = values + 4 * b;
      sm90::StoreMatrix4(base + BoxOffset<Y>(lane % 16, b + lane / 16),
                         Element<Y>::Pack(v[0], v[1]), Element<Y>::Pack(v[2], v[3]),
                         Element<Y>::Pack(v[4], v[5]), Element<Y>::Pack(v[6], v[7]));
    }
  } else {
#pragma unroll
    for (int i = 0; i < Chunk<Y>::kBlocks * 2; ++i) {
      const int b = i / 2, row = lane / 4 + i % 2 * 8;
      *reinterpret_cast<float2*>(box + BoxOffset<Y>(row, 2 * b + lane % 4 / 2) + lane % 2 * 8) =
          make_float2(values[2 * i], values[2 * i + 1]);
    }
  }
}

// Box to accumulator layout, added to `values`.
template <typename Y>
__device__ __forceinline__ void AddBox(const unsigned char* box, float* values, int lane) {
  if constexpr (sizeof(Y) == 2) {
    const uint32_t base = SharedAddress(box);
#pragma unroll
    for (int b = 0; b < Chunk<Y>::kBlocks; b += 2) {
      uint32_t words[4];
      LoadMatrices(words, base + BoxOffset<Y>(lane % 16, b + lane / 16));
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float2 pair = Element<Y>::Unpack(words[i]);
        values[4 * b + 2 * i] += pair.x;
        values[4 * b + 2 * i + 1] += pair.y;
      }
    }
  } else {
#pragma unroll
    for (int i = 0; i < Chunk<Y>::kBlocks * 2; ++i) {
      const int b = i / 2, row = lane / 4 + i % 2 * 8;
      const float2 pair = *reinterpret_cast<const float2*>(
          box + BoxOffset<Y>(row, 2 * b + lane % 4 / 2) + lane % 2 * 8);
      values[2 * i] += pair.x;
      values[2 * i + 1] += pair.y;
    }
  }
}

// This lane's part, in row layout, of the 16 rows that a warp has of a matrix. Past the edge nothing is
// read (zero) or written.
template <typename Y>
class Rows {
 public:
  // `first` is the warp's first element; `rows` and `columns` what is left of the matrix from there.
  __device__ __forceinline__ void Init(Y* first, int64_t ld, int rows, int columns, int lane) {
    at_ = first + lane / 8 * ld + lane % 8 * kVectorColumns;
    ld_ = ld;
    rows_ = rows - lane / 8;
    columns_ = columns - lane % 8 * kVectorColumns;
  }
  __device__ __forceinline__ void Load(int chunk, uint4 (&to)[Chunk<Y>::kLaneRows]) const {
#pragma unroll
    for (int i = 0; i < Chunk<Y>::kLaneRows; ++i) {
      to[i] = make_uint4(0, 0, 0, 0);
      if (Inside(chunk, i)) to[i] = *reinterpret_cast<const uint4*>(At(chunk, i));
    }
  }
  __device__ __forceinline__ void Store(int chunk, int i, uint4 value) const {
    if (Inside(chunk, i)) *reinterpret_cast<uint4*>(At(chunk, i)) = value;
  }

 private:
  static constexpr int kVectorColumns = 16 / sizeof(Y);
  __device__ __forceinline__ bool Inside(int chunk, int i) const {
    return 4 * i < rows_ && chunk * Chunk<Y>::kColumns < columns_;
  }
  __device__ __forceinline__ Y* At(int chunk, int i) const {
    return at_ + 4 * i * ld_ + chunk * Chunk<Y>::kColumns;
  }

  Y* at_;
  int64_t ld_;
  int rows_, columns_;
};

// Bias of a tile: lane l holds columns 2l and 2l+1 of every 64.
template <typename T, int columns>
struct Bias {
  uint32_t pairs[columns / 64];

  __device__ __forceinline__ void Load(const void* bias, int column, int n, int lane) {
#pragma unroll
    for (int i = 0; i < columns / 64; ++i) {
      const int at = column + 64 * i + 2 * lane;
      pairs[i] = 0;
      if (bias != nullptr && at < n) {
        pairs[i] = __ldg(reinterpret_cast<const uint32_t*>(static_cast<const T*>(bias) + at));
      }
    }
  }
  // Columns `block` * 8 + 2q, +1 for this lane. All lanes call.
  __device__ __forceinline__ float2 Pair(int block, int lane) const {
    return Element<T>::Unpack(__shfl_sync(~0u, pairs[block / 8], block % 8 * 4 + lane % 4));
  }
};

// A warp's part of a tile: 16 rows from `row` (within the tile), and its boxes.
struct Warp {
  int lane;
  int row;
  unsigned char (*box)[kChunkRows * kChunkBytes];
};

template <typename T, typename Y, int tiling, Epilogue epilogue, bool adds>
class TileEpilogue {
 public:
  static constexpr int kTileColumns = kTilings[tiling].columns;
  static constexpr int kBoxes = kTilings[tiling].boxes;
  static constexpr int kChunks = kTileColumns / Chunk<Y>::kColumns;
  // Chunks of the residual that are loaded before the products: what registers hold beside the sums.
  static constexpr int kAhead = kTileColumns == 256 ? 3 : kChunks < 4 ? kChunks : 4;

  // Before the products: loads what can be loaded early.
  __device__ __forceinline__ void Begin(const Place& at, const Warp& warp, const Params& p) {
    bias_.Load(p.bias, at.column, p.n, warp.lane);
    const int row = at.row + warp.row;
    const int64_t matrix_row = static_cast<int64_t>(at.group) * p.rows + row;
    y_.Init(static_cast<Y*>(p.y) + matrix_row * p.ldy + at.column, p.ldy, p.rows - row,
            p.n - at.column, warp.lane);
    if constexpr (adds) {
      residual_.Init(
          static_cast<Y*>(const_cast<void*>(p.residual)) + matrix_row * p.ldr + at.column, p.ldr,
          p.rows - row, p.n - at.column, warp.lane);
#pragma unroll
      for (int c = 0; c < kAhead; ++c) residual_.Load(c, loaded_[c]);
    }
  }

  __device__ __forceinline__ void Run(float (&acc)[kTileColumns / 2], const Warp& warp) {
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
      float* const values = acc + c * Chunk<Y>::kValues;
      unsigned char* const box = warp.box[c % kBoxes];
      // The residual before the bias: cuBLASLt's order, and so its bits.
      if constexpr (adds) {
        uint4(&loaded)[Chunk<Y>::kLaneRows] = loaded_[c % kAhead];
#pragma unroll
        for (int i = 0; i < Chunk<Y>::kLaneRows; ++i) *BoxPart(box, warp.lane, i) = loaded[i];
        __syncwarp();
        AddBox<Y>(box, values, warp.lane);
        if (c + kAhead < kChunks) residual_.Load(c + kAhead, loaded);
        __syncwarp();
      }
#pragma unroll
      for (int b = 0; b < Chunk<Y>::kBlocks; ++b) {
        const float2 bias = bias_.Pair(c * Chunk<Y>::kBlocks + b, warp.lane);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          values[4 * b + i] =
              Activate<epilogue>(values[4 * b + i] + (i % 2 == 0 ? bias.x : bias.y));
        }
      }
      WriteBox<Y>(values, box, warp.lane);
      __syncwarp();
#pragma unroll
      for (int i = 0; i < Chunk<Y>::kLaneRows; ++i) y_.Store(c, i, *BoxPart(box, warp.lane, i));
      // With two boxes the next chunk's barrier comes before this box is written again.
      if constexpr (kBoxes == 1 || adds) __syncwarp();
    }
    if constexpr (kBoxes > 1) __syncwarp();
  }

 private:
  static __device__ __forceinline__ uint4* BoxPart(unsigned char* box, int lane, int i) {
    return reinterpret_cast<uint4*>(box + BoxOffset<Y>(lane / 8 + 4 * i, lane % 8));
  }

  Bias<T, kTileColumns> bias_;
  Rows<Y> y_;
  Rows<Y> residual_;
  uint4 loaded_[kAhead][Chunk<Y>::kLaneRows];
};

// ---------------------------------------------------------------- consumer: a warpgroup
// Tells every block of the cluster that this consumer is done with a stage.
template <typename T, int tiling>
__device__ __forceinline__ void Release(Layout<T, tiling>& shared, int stage, int thread) {
  constexpr int kCluster = kTilings[tiling].cluster;
  if constexpr (kCluster == 1) {
    if (thread == 0) sm90::BarrierArrive(&shared.empty[stage]);
  } else {
    if (thread < kCluster) sm90::BarrierArriveAt(&shared.empty[stage], thread);
  }
}

template <typename T, typename Y, int tiling, Epilogue epilogue, bool adds>
__device__ __forceinline__ void Consume(Layout<T, tiling>& shared, int group, int rank,
                                        const Params& p) {
  constexpr Tiling kTiling = kTilings[tiling];
  constexpr int kProducts = kTiling.products();
  constexpr uint32_t kProductBytes = kProductRows * kTileK * sizeof(T);
  const int thread = threadIdx.x % 128;
  const int first_row = kTiling.in_turns() ? 0 : group * kProductRows;  // of a tile
  TileEpilogue<T, Y, tiling, epilogue, adds> epilogue_of_tile;
  Warp warp{thread % 32, first_row + thread / 32 * 16, shared.store[group * 4 + thread / 32]};
  const uint32_t a_low = sm90::DescriptorLow(shared.a[0] + first_row * kTileK);
  const uint32_t b_low = sm90::DescriptorLow(shared.b[0]);
  Ring<kTiling.stages> ring;
  float acc[kProducts][kTiling.columns / 2];
  // In turns, the other consumer's tiles lie between one's own, in the ring too.
  constexpr int kTurns = kTiling.in_turns() ? 2 : 1;
  const int turn = kTiling.in_turns() ? group : 0;
  if constexpr (kTurns > 1) ring.Advance(turn * p.k_steps);
  int phase = turn ^ 1;  // of the turns: the first consumer need not wait for its first one
  const int clusters = gridDim.x / kTiling.cluster;
  for (int tile = blockIdx.x / kTiling.cluster + turn * clusters; tile < p.tiles;
       tile += kTurns * clusters) {
    const Place at = PlaceOf<tiling>(tile, rank, p);
    epilogue_of_tile.Begin(at, warp, p);
    // Not before the other consumer has seen the last stage of its tile: a stage's barrier tells a phase from the next
    // one only, and not from the one after that.
    if constexpr (kTurns > 1) sm90::BarrierWait(&shared.turn[turn], phase), phase ^= 1;
    int previous = 0;
    for (int step = 0; step < p.k_steps; ++step) {
      sm90::BarrierWait(&shared.full[ring.stage], ring.phase);
      sm90::MmaFence();
      const uint32_t a = a_low + ring.stage * static_cast<uint32_t>(kTiling.a_bytes() / 16);
      const uint32_t b = b_low + ring.stage * static_cast<uint32_t>(kTiling.b_bytes() / 16);
#pragma unroll
      for (int i = 0; i < kTileK / 16; ++i) {
#pragma unroll
        for (int j = 0; j < kProducts; ++j) {
          sm90::GroupMmaShared<T, kTiling.columns>::Issue(
              acc[j], sm90::Descriptor(a + j * (kProductBytes / 16) + 2 * i),
              sm90::Descriptor(b + 2 * i), step + i);
        }
      }
      sm90::MmaCommit();
      sm90::MmaWait<1>();
      if (step > 0) Release(shared, previous, thread);
      previous = ring.stage;
      ring.Advance();
    }
    if constexpr (kTurns > 1) {
      if (warp.lane == 0) sm90::BarrierArrive(&shared.turn[turn ^ 1]);
    }
    sm90::MmaWait<0>();
    Release(shared, previous, thread);
    if constexpr (kTurns > 1) ring.Advance(p.k_steps);
#pragma unroll
    for (int j = 0; j < kProducts; ++j) {
      sm90::Pin(acc[j]);
      const Warp rows{warp.lane, warp.row + j * kProductRows, warp.box};
      if (j > 0) epilogue_of_tile.Begin(at, rows, p);
      epilogue_of_tile.Run(acc[j], rows);
    }
  }
}

// ---------------------------------------------------------------- kernel
template <typename T, typename Y, int tiling, Epilogue epilogue, bool adds>
__global__ void __launch_bounds__(kTilings[tiling].threads(), 1)
    GemmKernel(const __grid_constant__ CUtensorMap x, const __grid_constant__ CUtensorMap x2,
               const __grid_constant__ CUtensorMap weight, const __grid_constant__ Params p) {
  constexpr Tiling kTiling = kTilings[tiling];
  extern __shared__ unsigned char memory[];
  auto& shared =
      *reinterpret_cast<Layout<T, tiling>*>(memory + (1024 - SharedAddress(memory) % 1024) % 1024);
  const int rank = kTiling.cluster == 1 ? 0 : static_cast<int>(sm90::ClusterRank());
  if (threadIdx.x == 0) {
    for (int i = 0; i < kTiling.stages; ++i) {
      sm90::BarrierInit(&shared.full[i], 1);
      sm90::BarrierInit(&shared.empty[i], kTiling.readers() * kTiling.cluster);
    }
    for (uint64_t& turn : shared.turn) sm90::BarrierInit(&turn, 4);
    sm90::BarrierInitFence();
  }
  if constexpr (kTiling.cluster == 1) {
    __syncthreads();
  } else {
    sm90::ClusterSync();
  }
  const int group = threadIdx.x / 128;
  // One consumer group has registers enough as it is.
  constexpr bool kMoveRegisters = kTiling.consumers() > 1;
  if (group == kTiling.consumers()) {
    if constexpr (kMoveRegisters) sm90::RegistersDown<40>();
    if (threadIdx.x == kTiling.consumers() * 128) {
      sm90::PrefetchTensorMap(&x);
      sm90::PrefetchTensorMap(&weight);
      Producer<T, tiling>(shared, &x, &x2, &weight, rank, p).Run();
    }
    __syncwarp();
  } else {
    if constexpr (kMoveRegisters) sm90::RegistersUp<232>();
    BeginKernel();
    Consume<T, Y, tiling, epilogue, adds>(shared, group, rank, p);
  }
  // No block may leave while another loads into its shared memory or arrives on its barriers.
  if constexpr (kTiling.cluster > 1) sm90::ClusterSync();
}

// ---------------------------------------------------------------- table of kernels
template <typename T, typename Y, int tiling, Epilogue epilogue, bool adds>
const void* KernelOf() {
  return reinterpret_cast<const void*>(GemmKernel<T, Y, tiling, epilogue, adds>);
}

template <typename T, int tiling>
const void* FindKernelOf(DType y_type, Epilogue epilogue, bool adds) {
  if (epilogue != Epilogue::kNone) {
    if (adds || y_type == DType::kFp32) return nullptr;
    return epilogue == Epilogue::kGelu ? KernelOf<T, T, tiling, Epilogue::kGelu, false>()
                                       : KernelOf<T, T, tiling, Epilogue::kQuickGelu, false>();
  }
  if (y_type == DType::kFp32) {
    return adds ? KernelOf<T, float, tiling, Epilogue::kNone, true>()
                : KernelOf<T, float, tiling, Epilogue::kNone, false>();
  }
  return adds ? KernelOf<T, T, tiling, Epilogue::kNone, true>()
              : KernelOf<T, T, tiling, Epilogue::kNone, false>();
}

template <typename T, int tiling = 0>
const void* FindKernel(int wanted, DType y_type, Epilogue epilogue, bool adds) {
  if constexpr (tiling < kTilingCount) {
    if (wanted == tiling) return FindKernelOf<T, tiling>(y_type, epilogue, adds);
    return FindKernel<T, tiling + 1>(wanted, y_type, epilogue, adds);
  }
  return nullptr;
}

}  // namespace deepencoder::kernels::gemm_sm90
