// Attention of floats. Everything is products of small matrices whose right side is packed into
// panels:
//
//   rel  [q][2L-1]  = Q Rh^T, Q Rw^T              once a query tile; read back skewed
//   S    [q][keys]  = Q K^T / 8 + rel_h + rel_w   a key tile: a few whole rows of the key grid
//   P               = exp(S - max so far)
//   O    [q][64]    = O * exp(old max - new max) + P V
//
// Rows of the key grid are padded to whole registers; a padded key has a bias of kDead, so its
// probability is exactly 0.
#include "encoder/cpu/vector.h"
#include "encoder/cpu/vector_layer_norm.h"

namespace deepencoder::cpu::DEEPENCODER_ISA {
namespace {

constexpr int kHead = 64;
constexpr int kQueryTile = 96;
constexpr int kTileRows = 6;                         // queries in registers at a time
constexpr int kPanelVectors = kLanes == 16 ? 4 : 2;  // 6 x 4 sums of 32 registers, 6 x 2 of 16
constexpr int kPanel = kPanelVectors * kLanes;       // keys a panel
constexpr int kMaxTileKeys = 256;                    // of a key tile of several grid rows
constexpr float kDead = -1e30f;                      // finite: no inf - inf

// ---------------------------------------------------------------- layout

struct Layout {
  int stride;     // keys of a grid row, padded to whole registers
  int tile_rows;  // grid rows a key tile
  int tile_keys;
  int tiles;
};

// A tile's rows divide the grid and fill whole panels, so that only the panels of a grid of one
// tile can end in a narrower one.
Layout LayoutOf(const AttentionShape& shape) {
  const int stride = RoundUp(shape.columns, kLanes);
  int tile_rows = shape.rows;
  for (int rows = shape.rows; rows > 1; --rows) {
    const int keys = rows * stride;
    if (shape.rows % rows == 0 && keys <= kMaxTileKeys && keys % kPanel == 0) {
      tile_rows = rows;
      break;
    }
  }
  return {stride, tile_rows, tile_rows * stride, shape.rows / tile_rows};
}

int KeyTiles(const AttentionShape& shape) { return LayoutOf(shape).tiles; }
size_t PackedBytes(const AttentionShape& shape) {
  const Layout layout = LayoutOf(shape);
  return size_t{2} * layout.tiles * layout.tile_keys * kHead * sizeof(float);
}
int RelPosRows(int length) { return RoundUp(2 * length - 1, kLanes); }
size_t RelPosBytes(int length) {
  return static_cast<size_t>(RelPosRows(length)) * kHead * sizeof(float);
}

struct Scratch {
  float* q;       // [kQueryTile][64]
  float* rel_h;   // [kQueryTile][RelPosRows]: entry L-1-yq+yk is for key row yk
  float* rel_w;   // likewise
  float* bias;    // [stride] of one query: rel_w of every key column, kDead on padding
  float* scores;  // [kQueryTile][tile_keys], then probabilities
  float* out;     // [kQueryTile][64]
  float* max;     // [kQueryTile]
  float* sum;     // [kQueryTile]
  size_t bytes;
};

// Null memory: only to learn the bytes.
Scratch LayOut(const AttentionShape& shape, const Layout& layout, void* memory) {
  auto* const base = static_cast<float*>(memory);
  size_t used = 0;
  const auto take = [base, &used](size_t floats) {
    float* taken = base != nullptr ? base + used : nullptr;
    used += (floats + 15) / 16 * 16;
    return taken;
  };
  const size_t rel = shape.relative ? static_cast<size_t>(kQueryTile) * RelPosRows(shape.rows) : 0;
  Scratch s = {};
  s.q = take(size_t{kQueryTile} * kHead);
  s.rel_h = take(rel + kLanes);
  s.rel_w = take(rel + kLanes);
  s.bias = take(layout.stride);
  s.scores = take(static_cast<size_t>(kQueryTile) * layout.tile_keys);
  s.out = take(size_t{kQueryTile} * kHead);
  s.max = take(kQueryTile);
  s.sum = take(kQueryTile);
  s.bytes = used * sizeof(float);
  return s;
}
size_t ScratchBytes(const AttentionShape& shape) {
  return LayOut(shape, LayoutOf(shape), nullptr).bytes;
}

// ---------------------------------------------------------------- packing

// Column `column` of panels [64][width] that follow one another, `columns` in all (the last panel
// may be narrower), becomes the row `from` of 64 values.
void PackColumn(const float* from, int column, int columns, float* panels) {
  const int first = column / kPanel * kPanel;
  const int width = columns - first < kPanel ? columns - first : kPanel;
  float* to = panels + static_cast<size_t>(first) * kHead + (column - first);
  for (int d = 0; d < kHead; ++d) to[d * width] = from != nullptr ? from[d] : 0.0f;
}

void PackKeyTile(const AttentionShape& shape, const void* const* qkv, int head, int tile,
                 void* packed) {
  const Layout layout = LayoutOf(shape);
  const int keys = layout.tile_keys;
  float* k = static_cast<float*>(packed) + size_t{2} * tile * keys * kHead;
  float* v = k + static_cast<size_t>(keys) * kHead;
  for (int key = 0; key < keys; ++key) {
    const int y = tile * layout.tile_rows + key / layout.stride, x = key % layout.stride;
    const float* row =
        x < shape.columns ? static_cast<const float*>(qkv[y * shape.columns + x]) : nullptr;
    PackColumn(row != nullptr ? row + shape.width + head * kHead : nullptr, key, keys, k);
    float* to = v + static_cast<size_t>(key) * kHead;
    if (row != nullptr) {
      __builtin_memcpy(to, row + 2 * shape.width + head * kHead, kHead * sizeof(float));
    } else {
      __builtin_memset(to, 0, kHead * sizeof(float));
    }
  }
}

// Reversed, so that the entries of one query are in the order of the keys.
void PackRelPos(const float* table, int length, void* packed) {
  const int used = 2 * length - 1, rows = RelPosRows(length);
  for (int i = 0; i < rows; ++i) {
    PackColumn(i < used ? table + static_cast<size_t>(used - 1 - i) * kHead : nullptr, i, rows,
               static_cast<float*>(packed));
  }
}

// ---------------------------------------------------------------- products

// c[6][vectors] (+)= a[6][depth] b[depth][vectors]
template <int kVectors>
DEEPENCODER_INLINE void Product(const float* a, int lda, const float* b, int ldb, float* c, int ldc,
                                int depth, bool accumulate) {
  Vec sums[kTileRows][kVectors];
#pragma GCC unroll 8
  for (int i = 0; i < kTileRows; ++i) {
#pragma GCC unroll 8
    for (int j = 0; j < kVectors; ++j)
      sums[i][j] = accumulate ? Load(c + i * ldc + j * kLanes) : Vec{};
  }
  for (int d = 0; d < depth; ++d) {
    Vec right[kVectors];
#pragma GCC unroll 8
    for (int j = 0; j < kVectors; ++j) right[j] = Load(b + d * ldb + j * kLanes);
#pragma GCC unroll 8
    for (int i = 0; i < kTileRows; ++i) {
      const Vec left = Broadcast(a[i * lda + d]);
#pragma GCC unroll 8
      for (int j = 0; j < kVectors; ++j) sums[i][j] += left * right[j];
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < kTileRows; ++i) {
#pragma GCC unroll 8
    for (int j = 0; j < kVectors; ++j) Store(c + i * ldc + j * kLanes, sums[i][j]);
  }
}

// Product of the instance for `vectors`, at most kVectors.
template <int kVectors>
void ProductOf(int vectors, const float* a, const float* b, int ldb, float* c, int ldc) {
  if (vectors == kVectors) {
    Product<kVectors>(a, kHead, b, ldb, c, ldc, kHead, false);
  } else if constexpr (kVectors > 1) {
    ProductOf<kVectors - 1>(vectors, a, b, ldb, c, ldc);
  }
}

// c[rows][columns] = q[rows][64] panels, rows a multiple of 6.
void TimesPanels(const float* q, int rows, const float* panels, int columns, float* c, int ldc) {
  for (int first = 0; first < columns; first += kPanel) {
    const int width = columns - first < kPanel ? columns - first : kPanel;
    const float* b = panels + static_cast<size_t>(first) * kHead;
    for (int i = 0; i < rows; i += kTileRows) {
      ProductOf<kPanelVectors>(width / kLanes, q + i * kHead, b, width,
                               c + static_cast<size_t>(i) * ldc + first, ldc);
    }
  }
}

// out[rows][64] += p[rows][keys] v[keys][64]
void AddWeightedValues(const float* p, int rows, const float* v, int keys, float* out) {
  for (int i = 0; i < rows; i += kTileRows) {
    for (int d = 0; d < kHead; d += kPanel) {
      Product<kPanelVectors>(p + static_cast<size_t>(i) * keys, keys, v + d, kHead,
                             out + i * kHead + d, kHead, keys, true);
    }
  }
}

// ---------------------------------------------------------------- softmax

// e^x for x <= 0, to about 1 ulp; exactly 0 below -87, where it would leave the normal numbers.
DEEPENCODER_INLINE Vec Exp(Vec x) {
  constexpr float kLog2E = 1.44269504088896341f;
  constexpr float kLn2High = 0.693359375f,
                  kLn2Low = -2.12194440e-4f;  // the first has 9 bits: n * it is exact
  constexpr float kRound =
      12582912.0f;  // 1.5 * 2^23: adding it leaves the nearest integer in the low bits
  const Vec clamped = Max(x, Broadcast(-87.0f));
  const Vec shifted = clamped * kLog2E + kRound;
  const Vec n = shifted - kRound;
  const Vec r = (clamped - n * kLn2High) - n * kLn2Low;
  // Minimax of (e^r - 1 - r) / r^2 on |r| <= ln(2)/2, after Cephes' expf.
  Vec p = Broadcast(1.9875691500e-4f);
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  const Vec e = p * (r * r) + r + 1.0f;
  const Vec scaled = (Vec)((BitVec)e + ((BitVec)shifted << 23));
  return x < -87.0f ? Vec{} : scaled;
}

// scores = scores / 8 + bias; returns the largest.
float AddBias(float* scores, const float* bias, const float* rel_h, int rows, int stride) {
  Vec largest = Broadcast(kDead);
  for (int y = 0; y < rows; ++y) {
    const float row_bias = rel_h != nullptr ? rel_h[y] : 0.0f;
    for (int x = 0; x < stride; x += kLanes) {
      float* at = scores + y * stride + x;
      const Vec s = Load(at) * 0.125f + (Load(bias + x) + row_bias);
      Store(at, s);
      largest = Max(largest, s);
    }
  }
  return Max(largest);
}

// scores = exp(scores - max); returns the sum.
float Exponentiate(float* scores, int keys, float max) {
  Vec sum = {};
  for (int i = 0; i < keys; i += kLanes) {
    const Vec p = Exp(Load(scores + i) - max);
    Store(scores + i, p);
    sum += p;
  }
  return Sum(sum);
}

void ScaleRow(float* row, float factor) {
  for (int d = 0; d < kHead; d += kLanes) Store(row + d, Load(row + d) * factor);
}

// Turns the scores of one key tile into probabilities relative to the largest score so far.
void OnlineSoftmax(const AttentionShape& shape, const Layout& layout, const QueryTile& queries,
                   int tile, const Scratch& s) {
  const int stride = layout.stride, rows = layout.tile_rows, keys = layout.tile_keys;
  const int rel_rows = RelPosRows(shape.rows);
  for (int i = 0; i < queries.count; ++i) {
    const float* rel_h = nullptr;
    for (int x = shape.columns; x < stride; ++x) s.bias[x] = kDead;
    if (shape.relative) {
      const float* rel_w =
          s.rel_w + static_cast<size_t>(i) * rel_rows + (shape.columns - 1 - queries.x[i]);
      rel_h = s.rel_h + static_cast<size_t>(i) * rel_rows + (shape.rows - 1 - queries.y[i]) +
              tile * rows;
      __builtin_memcpy(s.bias, rel_w, shape.columns * sizeof(float));
    } else {
      __builtin_memset(s.bias, 0, shape.columns * sizeof(float));
    }
    float* scores = s.scores + static_cast<size_t>(i) * keys;
    const float tile_max = AddBias(scores, s.bias, rel_h, rows, stride);
    const float old_max = s.max[i];
    const float max = tile_max > old_max ? tile_max : old_max;
    if (max > old_max) {
      float factor[kLanes];
      Store(factor, Exp(Broadcast(old_max - max)));
      s.sum[i] *= factor[0];
      ScaleRow(s.out + i * kHead, factor[0]);
      s.max[i] = max;
    }
    s.sum[i] += Exponentiate(scores, keys, max);
  }
}

// ---------------------------------------------------------------- one tile of queries

[[gnu::nonnull]] void Attend(const AttentionShape& shape, int head, const QueryTile& queries,
                             const void* packed, const RelPosPair& tables, void* scratch) {
  const Layout layout = LayoutOf(shape);
  const Scratch s = LayOut(shape, layout, scratch);
  const int rows = RoundUp(queries.count, kTileRows), keys = layout.tile_keys;
  __builtin_memset(s.q, 0, static_cast<size_t>(rows) * kHead * sizeof(float));
  __builtin_memset(s.out, 0, static_cast<size_t>(rows) * kHead * sizeof(float));
  for (int i = 0; i < queries.count; ++i) {
    __builtin_memcpy(s.q + i * kHead, static_cast<const float*>(queries.qkv[i]) + head * kHead,
                     kHead * sizeof(float));
    s.max[i] = kDead;
    s.sum[i] = 0.0f;
  }
  if (shape.relative) {
    const int columns = RelPosRows(shape.rows);
    TimesPanels(s.q, rows, static_cast<const float*>(tables.h), columns, s.rel_h, columns);
    TimesPanels(s.q, rows, static_cast<const float*>(tables.w), columns, s.rel_w, columns);
  }
  for (int tile = 0; tile < layout.tiles; ++tile) {
    const float* k = static_cast<const float*>(packed) + size_t{2} * tile * keys * kHead;
    const float* v = k + static_cast<size_t>(keys) * kHead;
    TimesPanels(s.q, rows, k, keys, s.scores, keys);
    OnlineSoftmax(shape, layout, queries, tile, s);
    AddWeightedValues(s.scores, rows, v, keys, s.out);
  }
  for (int i = 0; i < queries.count; ++i) {
    ScaleRow(s.out + i * kHead, 1.0f / s.sum[i]);
    __builtin_memcpy(static_cast<float*>(queries.out[i]) + head * kHead, s.out + i * kHead,
                     kHead * sizeof(float));
  }
}

}  // namespace

const VectorKernels kKernels = {
    .layer_norm = LayerNorm,
    .attention = {.query_tile = kQueryTile,
                  .key_tiles = KeyTiles,
                  .packed_bytes = PackedBytes,
                  .pack_key_tile = PackKeyTile,
                  .rel_pos_bytes = RelPosBytes,
                  .pack_rel_pos = PackRelPos,
                  .scratch_bytes = ScratchBytes,
                  .attend = Attend},
};

}  // namespace deepencoder::cpu::DEEPENCODER_ISA
