// One block takes some tiles of queries of one (image, head) and walks over the keys with a running
// softmax. K and V come through a ring of stages. kSplits warps share a tile of queries: of each
// stage a warp takes its own kKeys keys, and the parts meet at the end. That shortens the way of a
// block where there are too few blocks to fill the GPU. The plan is the same for every batch, so that an
// image's rows have the same bits in any company.
//
// CLIP's sequences are one token longer than a square, 257 say: keys past the last whole step of
// kKeys go 16 at a time, and the tiles of queries are dealt to blocks of such a number of warps that
// few stay idle.
#include <limits>

#include "kernels/arguments.h"
#include "kernels/clip_attention.h"
#include "kernels/launch.cuh"
#include "kernels/mma_attention.cuh"

namespace deepencoder::kernels {
namespace {

constexpr int kHeads = 16;
constexpr int kWidth = kHeads * kHeadSize;
constexpr int kMaxTokens = 1 << 20;
constexpr int kGroupBytes = 16 * kRow * 2;  // from a group of 16 keys to the next

template <int kSplitsOfTile, int kRowTilesOfWarp, int kKeysOfWarp, int kStagesOfRing,
          int kMostWarps>
struct Plan {
  static constexpr int kSplits = kSplitsOfTile;
  static constexpr int kRowTiles = kRowTilesOfWarp;  // of 16 queries
  static constexpr int kTile = 16 * kRowTiles;       // queries of a warp
  static constexpr int kKeys = kKeysOfWarp;          // of a stage that a warp takes
  static constexpr int kStageKeys = kKeys * kSplits;
  static constexpr int kStages = kStagesOfRing;
  static constexpr int kMaxTiles = kMostWarps / kSplits;  // of queries in a block
  static constexpr int kMaxThreads = kMostWarps * kWarpSize;
};

using Split = Plan<2, 1, 32, 4, 8>;

template <typename T, typename P>
struct Stage {
  alignas(16) T k[P::kStageKeys][kRow];
  alignas(16) T v[P::kStageKeys][kRow];
};

// Queries, contexts at the end, of the tiles of a block lie behind this.
template <typename T, typename P>
struct Shared {
  union {
    Stage<T, P> stages[P::kStages];
    // A lane's sums and contexts of the splits after the first, once the stages are done with.
    float parts[P::kMaxTiles][P::kSplits][sizeof(Softmax<P::kRowTiles>) / sizeof(float)][kWarpSize];
  };
  __device__ T (*Queries())[kRow] { return reinterpret_cast<T(*)[kRow]>(this + 1); }
  static constexpr size_t Bytes(int tiles) {
    return sizeof(Shared) + size_t{P::kTile} * tiles * kRow * sizeof(T);
  }
};

template <typename T>
struct Operands {
  const T* qkv;
  T* out;
  int stride;  // elements between tokens
  int tokens;
  int tiles;   // of queries, in a block
  int blocks;  // of one head of one image
};

template <typename T, typename P>
__device__ __forceinline__ void CopyStage(const T* qkv, int stride, int tokens, int first,
                                          Stage<T, P>& stage) {
  if (first >= tokens) return;
#pragma unroll 1
  for (unsigned i = threadIdx.x; i < P::kStageKeys * kPieces; i += blockDim.x) {
    const int row = i / kPieces;
    const int piece = i % kPieces * kVector;
    const bool valid = first + row < tokens;
    const T* from = qkv + int64_t{valid ? first + row : 0} * stride + piece;
    CopyAsyncOrZero(SharedAddress(&stage.k[row][piece]), from + kWidth, valid);
    CopyAsyncOrZero(SharedAddress(&stage.v[row][piece]), from + 2 * kWidth, valid);
  }
}

// Past the last query, that one again.
template <typename T>
__device__ __forceinline__ void CopyQueries(const T* qkv, int stride, int tokens, int first,
                                            int count, T (*queries)[kRow]) {
  for (unsigned i = threadIdx.x; i < count * kPieces; i += blockDim.x) {
    const int row = i / kPieces;
    const int piece = i % kPieces * kVector;
    CopyAsync(SharedAddress(&queries[row][piece]),
              qkv + int64_t{min(first + row, tokens - 1)} * stride + piece);
  }
}

// One step of the softmax over kGroups groups of keys, of which the first `keys` count.
template <typename T, typename P, int kGroups, bool kPartial>
__device__ __forceinline__ void Attend(const uint32_t (&queries)[kSteps][P::kRowTiles][4],
                                       uint32_t k, uint32_t v, int keys, int lane,
                                       Softmax<P::kRowTiles>& softmax) {
  Scores<P::kRowTiles, kGroups> scores = {};
  const auto load_q = [&](int step, uint32_t(&q)[P::kRowTiles][4]) {
#pragma unroll
    for (int i = 0; i < 4 * P::kRowTiles; ++i) q[i / 4][i % 4] = queries[step][i / 4][i % 4];
  };
  AddProducts<T, P::kRowTiles, kGroups, kGroupBytes>(load_q, k, scores);
  if constexpr (kPartial) {
#pragma unroll
    for (auto& tiles : scores) {
#pragma unroll
      for (int i = 0; i < 8 * kGroups; ++i) {
        if (i / 4 * 8 + lane % 4 * 2 + i % 2 >= keys) tiles[i / 4][i % 4] = kMinusInfinity;
      }
    }
  }
  RaiseMaximum<P::kRowTiles, kGroups>(scores, softmax);
  AddContexts<T, 0, kGroups, kGroupBytes, P::kRowTiles, kGroups>(scores, v, softmax);
}

// The warp's own `keys` of a stage, which may be none or more than kKeys.
template <typename T, typename P>
__device__ __forceinline__ void AttendStage(const uint32_t (&queries)[kSteps][P::kRowTiles][4],
                                            uint32_t k, uint32_t v, int keys, int lane,
                                            Softmax<P::kRowTiles>& softmax) {
  if (keys >= P::kKeys) {
    Attend<T, P, P::kKeys / 16, false>(queries, k, v, P::kKeys, lane, softmax);
    return;
  }
#pragma unroll 1
  for (; keys > 0; keys -= 16, k += kGroupBytes, v += kGroupBytes) {
    Attend<T, P, 1, true>(queries, k, v, keys, lane, softmax);
  }
}

// Adds what the other splits found to the first one's softmax. All threads of the block call it.
template <typename T, typename P>
__device__ __forceinline__ void MergeSplits(int tile, int split, int lane, Shared<T, P>& shared,
                                            Softmax<P::kRowTiles>& softmax) {
  constexpr int kValues = sizeof(softmax) / sizeof(float);
  __syncthreads();  // the stages are done with
  auto& parts = shared.parts[tile];
  if (split > 0) {
    const float* values = reinterpret_cast<const float*>(&softmax);
#pragma unroll
    for (int i = 0; i < kValues; ++i) parts[split][i][lane] = values[i];
  }
  __syncthreads();
  if (split > 0) return;
#pragma unroll 1
  for (int other = 1; other < P::kSplits; ++other) {
    Softmax<P::kRowTiles> part;
    float* values = reinterpret_cast<float*>(&part);
#pragma unroll
    for (int i = 0; i < kValues; ++i) values[i] = parts[other][i][lane];
#pragma unroll
    for (int i = 0; i < 2 * P::kRowTiles; ++i) {
      const float most = fmaxf(softmax.most[i], part.most[i]);
      softmax.Raise(i, most);
      part.Raise(i, most);
      softmax.sum[i] += part.sum[i];
#pragma unroll
      for (int n = 0; n < 16; ++n) {
        softmax.context[i / 2][n / 2][i % 2 * 2 + n % 2] +=
            part.context[i / 2][n / 2][i % 2 * 2 + n % 2];
      }
    }
  }
}

template <typename T, typename P>
__global__ void __launch_bounds__(P::kMaxThreads, 2) ClipAttentionKernel(Operands<T> in) {
  BeginKernel();
  extern __shared__ uint4 storage[];
  Shared<T, P>& shared = *reinterpret_cast<Shared<T, P>*>(storage);
  const int lane = threadIdx.x % kWarpSize;
  const int tile = threadIdx.x / kWarpSize / P::kSplits;
  const int split = threadIdx.x / kWarpSize % P::kSplits;
  const LaneRows rows(lane);

  // Blocks of one head run together: they read the same keys.
  const int head = blockIdx.x / in.blocks % kHeads;
  const int image = static_cast<int>(blockIdx.x / in.blocks / kHeads);
  const int block_first = blockIdx.x % in.blocks * in.tiles * P::kTile;
  const int first = block_first + tile * P::kTile;
  const bool active = first < in.tokens;
  const T* qkv = in.qkv + int64_t{image} * in.tokens * in.stride + head * kHeadSize;

  CopyQueries(qkv, in.stride, in.tokens, block_first, in.tiles * P::kTile, shared.Queries());
  CopyAsyncCommit();
#pragma unroll
  for (int stage = 0; stage < P::kStages - 1; ++stage) {
    CopyStage<T, P>(qkv, in.stride, in.tokens, stage * P::kStageKeys, shared.stages[stage]);
    CopyAsyncCommit();
  }

  CopyAsyncWait<P::kStages - 1>();
  __syncthreads();
  uint32_t queries[kSteps][P::kRowTiles][4];
  T(*const own_rows)[kRow] = shared.Queries() + tile * P::kTile;
#pragma unroll
  for (int i = 0; i < kSteps * P::kRowTiles; ++i) {
    LoadMatrices(
        queries[i / P::kRowTiles][i % P::kRowTiles],
        SharedAddress(
            &own_rows[i % P::kRowTiles * 16 + rows.a_row][i / P::kRowTiles * 16 + rows.a_column]));
  }

  Softmax<P::kRowTiles> softmax;
  int stage = 0;
#pragma unroll 1
  for (int at = 0; at < in.tokens; at += P::kStageKeys) {
    CopyAsyncWait<P::kStages - 2>();
    __syncthreads();  // this stage is there, and the one before it is done with
    CopyStage<T, P>(qkv, in.stride, in.tokens, at + (P::kStages - 1) * P::kStageKeys,
                    shared.stages[stage == 0 ? P::kStages - 1 : stage - 1]);
    CopyAsyncCommit();
    if (active) {
      const Stage<T, P>& now = shared.stages[stage];
      AttendStage<T, P>(queries,
                        SharedAddress(&now.k[split * P::kKeys + rows.b_row][rows.b_column]),
                        SharedAddress(&now.v[split * P::kKeys + rows.a_row][rows.a_column]),
                        in.tokens - at - split * P::kKeys, lane, softmax);
    }
    stage = stage == P::kStages - 1 ? 0 : stage + 1;
  }
  CopyAsyncWaitAll();
  if constexpr (P::kSplits > 1) MergeSplits(tile, split, lane, shared, softmax);
  if (!active || split > 0) return;

  StoreContexts<T>(softmax, lane, own_rows);
  __syncwarp();
  const int piece = lane % kPieces * kVector;
  T* out = in.out + int64_t{image} * in.tokens * kWidth + head * kHeadSize + piece;
#pragma unroll
  for (int row = lane / kPieces; row < P::kTile; row += kWarpSize / kPieces) {
    if (first + row < in.tokens) {
      *reinterpret_cast<uint4*>(out + static_cast<int64_t>(first + row) * kWidth) =
          *reinterpret_cast<const uint4*>(&own_rows[row][piece]);
    }
  }
}

// Tiles of queries a block that leave the fewest warps idle; of equals the most, as a block reads
// all keys.
template <typename P>
int TilesOfBlock(int tokens) {
  const int64_t tiles = CeilDiv(tokens, P::kTile);
  int best = P::kMaxTiles;
  for (int count = P::kMaxTiles; 2 * count >= P::kMaxTiles && count > 0; --count) {
    if (CeilDiv(tiles, count) * count < CeilDiv(tiles, best) * best) best = count;
  }
  return best;
}

template <typename P>
int64_t BlocksOfHead(int tokens) {
  return CeilDiv(tokens, TilesOfBlock<P>(tokens) * P::kTile);
}

template <typename T, typename P>
Status Launch(const ClipAttentionArgs& args, cudaStream_t stream) {
  const int tiles = TilesOfBlock<P>(args.tokens);
  const int64_t blocks = BlocksOfHead<P>(args.tokens);
  const Operands<T> operands = {static_cast<const T*>(args.qkv),
                                static_cast<T*>(args.out),
                                static_cast<int>(args.qkv_stride),
                                args.tokens,
                                tiles,
                                static_cast<int>(blocks)};
  const size_t bytes = Shared<T, P>::Bytes(tiles);
  static_assert(Shared<T, P>::Bytes(P::kMaxTiles) <= 99 * 1024,
                "sm_89 and sm_120 have 99 KiB for a block");
  // An attribute of the function on the current device, so set at every launch.
  DEEPENCODER_CUDA_RETURN(
      cudaFuncSetAttribute(ClipAttentionKernel<T, P>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                           static_cast<int>(Shared<T, P>::Bytes(P::kMaxTiles))));
  return LaunchKernel(ClipAttentionKernel<T, P>,
                      static_cast<unsigned>(blocks * kHeads * args.batch),
                      tiles * P::kSplits * kWarpSize, bytes, stream, operands);
}

template <typename T>
Status LaunchOfType(const ClipAttentionArgs& args, cudaStream_t stream) {
  return Launch<T, Split>(args, stream);
}

}  // namespace

Status LaunchClipAttention(const ClipAttentionArgs& args, cudaStream_t stream) {
  DEEPENCODER_RETURN(CheckModelType(args.type, "CLIP attention: type"));
  DEEPENCODER_RETURN(CheckRange(args.tokens, 1, kMaxTokens, "CLIP attention: tokens"));
  // A tile has 16 queries.
  DEEPENCODER_RETURN(CheckRange(
      args.batch, 1, std::numeric_limits<int>::max() / (CeilDiv(args.tokens, 16) * kHeads),
      "CLIP attention: batch"));
  DEEPENCODER_RETURN(CheckRange(args.qkv_stride, 3 * kWidth, std::numeric_limits<int>::max(),
                                "CLIP attention: qkv_stride"));
  if (args.qkv_stride % kVector != 0) {
    return InvalidArgument("CLIP attention: qkv_stride is not a multiple of 8");
  }
  DEEPENCODER_RETURN(CheckPointer(args.qkv, "CLIP attention: qkv"));
  DEEPENCODER_RETURN(CheckPointer(args.out, "CLIP attention: out"));
  return args.type == DType::kBf16 ? LaunchOfType<__nv_bfloat16>(args, stream)
                                   : LaunchOfType<__half>(args, stream);
}

}  // namespace deepencoder::kernels
