// One block a (image, window, head). The window's 196 keys and values lie in shared memory. A warp
// takes 16 queries at a time and the keys in two passes, so that all scores of a pass stay in
// registers and two blocks fit a multiprocessor.
//
// Keys go in 14 groups of 16: group y is row y of the window, columns 0..13, and two columns 14 and
// 15 that repeat column 13's rows of shared memory under a score of -inf. So a lane's columns are
// the same in every group: rel_w gives it eight start values for the score accumulators of 16
// queries, kept in registers, and rel_h is one number a query and a group. Both terms are products
// of the queries with a table,
//   terms[i][d] = q_i . table[d],  d = y_i - y_j + 13 or x_i - x_j + 13,
// stored to the warp's scratch and read back skewed. They are added to q.k as 8 terms, because the
// exponent's factor log2(e) / 8 comes after: q is never scaled.
#include <limits>

#include "kernels/arguments.h"
#include "kernels/launch.cuh"
#include "kernels/mma_attention.cuh"
#include "kernels/window_attention.h"

namespace deepencoder::kernels {
namespace {

constexpr int kSide = 14;             // of a window
constexpr int kKeys = kSide * kSide;  // of a window, padded ones included
constexpr int kHeads = 12;
constexpr int kWidth = kHeads * kHeadSize;
constexpr int kTableRows = 2 * kSide - 1;
constexpr int kMaxGrid = 4096;

constexpr int kRowTiles = 1;  // of 16 queries, that a warp takes at a time
constexpr int kTile = 16 * kRowTiles;
constexpr int kPasses = 2;
constexpr int kGroups = kSide / kPasses;  // groups of keys in a pass
constexpr int kWarps = 8;
constexpr int kBlocksPerSm = 2;  // 16 warps of 128 registers a thread
static_assert(kGroups * kPasses == kSide);
constexpr int kThreads = kWarps * kWarpSize;

constexpr int kGroupBytes = kSide * kRow * 2;  // from a group of keys to the next
// A row of bias terms, in floats: 27 are used, 32 computed.
constexpr int kTermRow = 36;

template <typename T>
struct Operands {
  const T* qkv;
  const T* qkv_bias;
  const T* rel_h;
  const T* rel_w;
  T* out;
  int grid;
  int windows;  // along one side
};

// The real tokens of one window, numbered by rows.
struct Window {
  int64_t first;  // its first token, over the whole batch
  int grid;
  int height, width;
  uint32_t reciprocal;  // ceil(2^16 / width): i * reciprocal >> 16 = i / width for i < 256

  __device__ Window(int64_t image, int index, int windows, int grid_side) : grid(grid_side) {
    const int top = index / windows * kSide;
    const int left = index % windows * kSide;
    first = (image * grid + top) * grid + left;
    height = min(kSide, grid - top);
    width = min(kSide, grid - left);
    reciprocal = (65536 + width - 1) / width;
  }
  __device__ int Queries() const { return height * width; }
  __device__ int Row(int query) const { return static_cast<int>(query * reciprocal >> 16); }
  __device__ int Column(int query) const { return query - Row(query) * width; }
  __device__ int64_t Token(int y, int x) const { return first + y * grid + x; }
  __device__ int64_t Token(int query) const { return Token(Row(query), Column(query)); }
};

template <typename T>
struct WarpScratch {
  alignas(16) T q[kTile][kRow];
  union {
    alignas(16) float terms[kTile][kTermRow];
    alignas(16) T context[kTile][kRow];
  };
};

template <typename T>
struct Shared {
  alignas(16) T k[kKeys][kRow];
  alignas(16) T v[kKeys][kRow];
  alignas(16) T rel_h[kTableRows][kRow];
  alignas(16) T rel_w[kTableRows][kRow];
  WarpScratch<T> warp[kWarps];
  Window window;  // here, since a warp needs it now and then but has no registers to keep it in
};
static_assert(sizeof(Shared<__half>) <= 99 * 1024, "sm_89 and sm_120 have 99 KiB for a block");

template <typename T>
__device__ __forceinline__ void CopyKeysAndValues(const Operands<T>& in, const Window& window,
                                                  int head, Shared<T>& shared) {
  const int piece = threadIdx.x % kPieces * kVector;
  const int64_t column = head * kHeadSize + piece;
  for (int key = threadIdx.x / kPieces; key < kKeys; key += kThreads / kPieces) {
    const int y = key / kSide;
    const int x = key % kSide;
    const bool real = y < window.height && x < window.width;
    const T* from = (real ? in.qkv + window.Token(y, x) * (3 * kWidth) : in.qkv_bias) + column;
    CopyAsync(SharedAddress(&shared.k[key][piece]), from + kWidth);
    CopyAsync(SharedAddress(&shared.v[key][piece]), from + 2 * kWidth);
  }
}

template <typename T>
__device__ __forceinline__ void CopyTables(const Operands<T>& in, Shared<T>& shared) {
  for (int i = threadIdx.x; i < kTableRows * kPieces; i += kThreads) {
    const int row = i / kPieces;
    const int piece = i % kPieces * kVector;
    CopyAsync(SharedAddress(&shared.rel_h[row][piece]), in.rel_h + row * kHeadSize + piece);
    CopyAsync(SharedAddress(&shared.rel_w[row][piece]), in.rel_w + row * kHeadSize + piece);
  }
}

// The warp's queries from `first`; past the last one, that one again.
template <typename T>
__device__ __forceinline__ void CopyQueries(const Operands<T>& in, const Window& window, int head,
                                            int first, WarpScratch<T>& scratch) {
  if (first >= window.Queries()) return;
  const int lane = threadIdx.x % kWarpSize;
  const int piece = lane % kPieces * kVector;
#pragma unroll 1
  for (int row = lane / kPieces; row < kTile; row += kWarpSize / kPieces) {
    const int query = min(first + row, window.Queries() - 1);
    CopyAsync(SharedAddress(&scratch.q[row][piece]),
              in.qkv + window.Token(query) * (3 * kWidth) + head * kHeadSize + piece);
  }
}

// The queries' A tiles of one step along the head.
template <typename T>
__device__ __forceinline__ void LoadQueries(const WarpScratch<T>& scratch, const LaneRows& rows,
                                            int step, uint32_t (&q)[kRowTiles][4]) {
#pragma unroll
  for (int m = 0; m < kRowTiles; ++m) {
    LoadMatrices(q[m], SharedAddress(&scratch.q[16 * m + rows.a_row][rows.a_column + 16 * step]));
  }
}

// scratch.terms[i][d] = 8 q_i . table[d], d < 27
template <typename T>
__device__ __forceinline__ void BiasTerms(const T (&table)[kTableRows][kRow], const LaneRows& rows,
                                          int lane, WarpScratch<T>& scratch) {
  float terms[kRowTiles][4][4] = {};
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    uint32_t q[kRowTiles][4];
    LoadQueries(scratch, rows, step, q);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      uint32_t b[4];
      const int row = min(16 * half + rows.b_row, kTableRows - 1);
      LoadMatrices(b, SharedAddress(&table[row][rows.b_column + 16 * step]));
#pragma unroll
      for (int m = 0; m < kRowTiles; ++m) {
        Mma<T>(terms[m][2 * half], q[m], b[0], b[1]);
        Mma<T>(terms[m][2 * half + 1], q[m], b[2], b[3]);
      }
    }
  }
#pragma unroll
  for (int i = 0; i < 8 * kRowTiles; ++i) {
    const int m = i / 8;
    const int n = i / 2 % 4;
    const int r = i % 2;
    *reinterpret_cast<float2*>(&scratch.terms[16 * m + 8 * r + lane / 4][8 * n + lane % 4 * 2]) =
        make_float2(kInverseScale * terms[m][n][2 * r], kInverseScale * terms[m][n][2 * r + 1]);
  }
}

// The lane's queries are rows lane / 4 + 8 i of the tile, i < 2 kRowTiles. For each its columns'
// terms: terms[i][h][c] belongs to the key column 8 h + 2 (lane % 4) + c; -inf in columns 14 and
// 15.
using WidthTerms = float[2 * kRowTiles][2][2];

template <typename T>
__device__ __forceinline__ void LoadWidthTerms(const WarpScratch<T>& scratch, int lane,
                                               const int (&x)[2 * kRowTiles], WidthTerms& terms) {
#pragma unroll
  for (int i = 0; i < 2 * kRowTiles; ++i) {
#pragma unroll
    for (int column = 0; column < 4; ++column) {
      const int key_x = 8 * (column / 2) + lane % 4 * 2 + column % 2;
      terms[i][column / 2][column % 2] =
          key_x < kSide ? scratch.terms[lane / 4 + 8 * i][x[i] - key_x + kSide - 1]
                        : kMinusInfinity;
    }
  }
}

// scores = 8 (rel_h + rel_w) terms. height_column[i] is the column in scratch.terms of the term of
// the pass's first group; the next group's lies one before.
template <typename T>
__device__ __forceinline__ void StartScores(const WarpScratch<T>& scratch, int lane,
                                            const int (&height_column)[2 * kRowTiles],
                                            const WidthTerms& width_terms,
                                            Scores<kRowTiles, kGroups>& scores) {
#pragma unroll
  for (int g = 0; g < kGroups; ++g) {
#pragma unroll
    for (int i = 0; i < 2 * kRowTiles; ++i) {
      const float height_term = scratch.terms[lane / 4 + 8 * i][height_column[i] - g];
#pragma unroll
      for (int column = 0; column < 4; ++column) {
        scores[i / 2][2 * g + column / 2][i % 2 * 2 + column % 2] =
            height_term + width_terms[i][column / 2][column % 2];
      }
    }
  }
}

// The tile's rows of scratch.context to where they belong.
template <typename T>
__device__ __forceinline__ void CopyOut(const WarpScratch<T>& scratch, const Window& window,
                                        int head, int first, int lane, T* out) {
  const int piece = lane % kPieces * kVector;
#pragma unroll
  for (int row = lane / kPieces; row < kTile; row += kWarpSize / kPieces) {
    const int query = first + row;
    if (query < window.Queries()) {
      *reinterpret_cast<uint4*>(out + window.Token(query) * kWidth + head * kHeadSize + piece) =
          *reinterpret_cast<const uint4*>(&scratch.context[row][piece]);
    }
  }
}

// The tile of queries from `first`, whose q is in the scratch; copies the next tile's there.
template <typename T>
__device__ __forceinline__ void AttendTile(const Operands<T>& in, int head, int first, int lane,
                                           Shared<T>& shared, WarpScratch<T>& scratch) {
  const Window& window = shared.window;
  const LaneRows rows(lane);
  int height_column[2 * kRowTiles];
  int x[2 * kRowTiles];
#pragma unroll
  for (int i = 0; i < 2 * kRowTiles; ++i) {
    const int query = min(first + lane / 4 + 8 * i, window.Queries() - 1);
    height_column[i] = window.Row(query) + kSide - 1;
    x[i] = window.Column(query);
  }

  WidthTerms width_terms;
  BiasTerms(shared.rel_w, rows, lane, scratch);
  __syncwarp();
  LoadWidthTerms(scratch, lane, x, width_terms);
  __syncwarp();
  BiasTerms(shared.rel_h, rows, lane, scratch);
  __syncwarp();

  const auto load_q = [&](int step, uint32_t(&q)[kRowTiles][4]) {
    LoadQueries(scratch, rows, step, q);
  };
  Softmax<kRowTiles> softmax;
  uint32_t k = SharedAddress(&shared.k[min(rows.b_row, kSide - 1)][rows.b_column]);
  uint32_t v = SharedAddress(&shared.v[min(rows.a_row, kSide - 1)][rows.a_column]);
#pragma unroll 1
  for (int pass = 0; pass < kPasses; ++pass) {
    Scores<kRowTiles, kGroups> scores;
    StartScores(scratch, lane, height_column, width_terms, scores);
    AddProducts<T, kRowTiles, kGroups, kGroupBytes>(load_q, k, scores);
    RaiseMaximum<kRowTiles, kGroups>(scores, softmax);
    AddContexts<T, 0, kGroups / 2, kGroupBytes, kRowTiles, kGroups>(scores, v, softmax);
    if (pass == kPasses - 1) {  // half the scores' registers are free again
      __syncwarp();
      CopyQueries(in, window, head, first + kWarps * kTile, scratch);
    }
    AddContexts<T, kGroups / 2, kGroups, kGroupBytes, kRowTiles, kGroups>(scores, v, softmax);
    k += kGroups * kGroupBytes;
    v += kGroups * kGroupBytes;
#pragma unroll
    for (int& column : height_column) column -= kGroups;
  }
  StoreContexts<T>(softmax, lane, scratch.context);
  __syncwarp();
  CopyOut(scratch, window, head, first, lane, in.out);
}

template <typename T>
__global__ void __launch_bounds__(kThreads, kBlocksPerSm) WindowAttentionKernel(Operands<T> in) {
  BeginKernel();
  extern __shared__ uint4 storage[];
  Shared<T>& shared = *reinterpret_cast<Shared<T>*>(storage);
  const int lane = threadIdx.x % kWarpSize;
  const int warp = threadIdx.x / kWarpSize;
  WarpScratch<T>& scratch = shared.warp[warp];

  // Heads of one window run together: their rows are neighbours in memory.
  const int head = blockIdx.x % kHeads;
  const int place = blockIdx.x / kHeads;
  const int windows = in.windows * in.windows;
  const Window window(place / windows, place % windows, in.windows, in.grid);

  CopyQueries(in, window, head, warp * kTile, scratch);
  CopyTables(in, shared);
  CopyKeysAndValues(in, window, head, shared);
  if (threadIdx.x == 0) shared.window = window;
  CopyAsyncWaitAll();
  __syncthreads();
  for (int first = warp * kTile; first < shared.window.Queries(); first += kWarps * kTile) {
    AttendTile(in, head, first, lane, shared, scratch);
    CopyAsyncWaitAll();
    __syncwarp();
  }
}

template <typename T>
Status Launch(const WindowAttentionArgs& args, int windows, int64_t blocks, cudaStream_t stream) {
  const Operands<T> operands = {static_cast<const T*>(args.qkv),
                                static_cast<const T*>(args.qkv_bias),
                                static_cast<const T*>(args.rel_h),
                                static_cast<const T*>(args.rel_w),
                                static_cast<T*>(args.out),
                                args.grid,
                                windows};
  // An attribute of the function on the current device, so set at every launch; costs no driver
  // call to the device.
  DEEPENCODER_CUDA_RETURN(cudaFuncSetAttribute(
      WindowAttentionKernel<T>, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(Shared<T>)));
  return LaunchKernel(WindowAttentionKernel<T>, static_cast<unsigned>(blocks), kThreads,
                      sizeof(Shared<T>), stream, operands);
}

}  // namespace

Status LaunchWindowAttention(const WindowAttentionArgs& args, cudaStream_t stream) {
  DEEPENCODER_RETURN(CheckModelType(args.type, "window attention: type"));
  DEEPENCODER_RETURN(CheckRange(args.grid, 1, kMaxGrid, "window attention: grid"));
  const int windows = static_cast<int>(CeilDiv(args.grid, kSide));
  const int64_t blocks_an_image = int64_t{windows} * windows * kHeads;
  DEEPENCODER_RETURN(CheckRange(args.batch, 1, std::numeric_limits<int>::max() / blocks_an_image,
                                "window attention: batch"));
  DEEPENCODER_RETURN(CheckPointer(args.qkv, "window attention: qkv"));
  DEEPENCODER_RETURN(CheckPointer(args.qkv_bias, "window attention: qkv_bias"));
  DEEPENCODER_RETURN(CheckPointer(args.rel_h, "window attention: rel_h"));
  DEEPENCODER_RETURN(CheckPointer(args.rel_w, "window attention: rel_w"));
  DEEPENCODER_RETURN(CheckPointer(args.out, "window attention: out"));
  const int64_t blocks = blocks_an_image * args.batch;
  return args.type == DType::kBf16 ? Launch<__nv_bfloat16>(args, windows, blocks, stream)
                                   : Launch<__half>(args, windows, blocks, stream);
}

}  // namespace deepencoder::kernels
