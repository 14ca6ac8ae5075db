// Attention of bf16 on AMX tiles: 16 rows of 64 bytes, products of 16 x 32 by 32 x 16 bf16 into
// floats.
//
//   rel  [q][2L-1]  = Q Rh^T, Q Rw^T              once a query tile; read back skewed
//   S    [q][keys]  = Q K^T                       a key tile: a few whole rows of the key grid
//   P    (bf16)     = 2^(S * log2(e)/8 + rel_h + rel_w - reference)     rel already times log2(e)
//   O    [q][64]   += P V
//
// The reference of a query is its largest score of the first key tile. Later scores may exceed it,
// by so much that a tile's probabilities add up to kMostSum: floats and bf16 have the range to
// spare. Only then does it move, and O is scaled. So a key tile costs one pass over its scores.
// Rows of the key grid are padded to 16 keys, whose bias is kDead.
#include <immintrin.h>

#include "encoder/cpu/kernels.h"

namespace deepencoder::cpu::amx {
namespace {

using Bf16 = unsigned short;

constexpr int kHead = 64;
constexpr int kTile = 16;          // rows of a tile register
constexpr int kBlock = 2 * kTile;  // queries or keys of a 2 x 2 block of tiles
constexpr int kQueryTile = 64;     // two blocks share each key tile while it is in the L1 cache
constexpr int kMaxTileKeys = 224;  // of a key tile of several grid rows: a whole window of 14 x 16
constexpr int kTileBytes = 1024;
constexpr int kTileElements = 512;  // bf16
constexpr float kLog2E = 1.44269504088896341f;
constexpr float kScale = 0.125f * kLog2E;
constexpr float kDead = -1e30f;      // finite: no inf - inf
constexpr float kMostSum = 0x1p40f;  // of a key tile's probabilities before their reference moves

constexpr int RoundUp(int value, int multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// ---------------------------------------------------------------- layout

struct Layout {
  int stride;     // keys of a grid row, padded to whole registers
  int tile_rows;  // grid rows a key tile
  int grid_keys;  // keys of a tile that have a place in a grid row or its padding
  int tile_keys;  // with the padding at the tile's end: whole blocks
  int tiles;
};

// A tile's rows divide the grid and fill whole blocks of 32 keys where any number of them does.
Layout LayoutOf(const AttentionShape& shape) {
  const int stride = RoundUp(shape.columns, shape.rows == 1 ? kBlock : kTile);
  int tile_rows = stride % kBlock == 0 ? 1 : shape.rows;
  for (int rows = shape.rows; rows > 1; --rows) {
    const int keys = rows * stride;
    if (shape.rows % rows == 0 && keys <= kMaxTileKeys && keys % kBlock == 0) {
      tile_rows = rows;
      break;
    }
  }
  const int grid_keys = tile_rows * stride;
  return {stride, tile_rows, grid_keys, RoundUp(grid_keys, kBlock), shape.rows / tile_rows};
}

int KeyTiles(const AttentionShape& shape) { return LayoutOf(shape).tiles; }
size_t PackedBytes(const AttentionShape& shape) {
  const Layout layout = LayoutOf(shape);
  return size_t{2} * layout.tiles * layout.tile_keys * kHead * sizeof(Bf16);
}
int RelPosRows(int length) { return RoundUp(2 * length - 1, kBlock); }
size_t RelPosBytes(int length) {
  return static_cast<size_t>(RelPosRows(length)) * kHead * sizeof(Bf16);
}

struct Scratch {
  Bf16* q;           // [kQueryTile][64]
  float* rel_h;      // [kQueryTile][RelPosRows]: entry L-1-yq+yk is for key row yk; times log2(e)
  float* rel_w;      // likewise
  float* bias;       // [kQueryTile][Stride]: rel_w of every key column, kDead on padding
  float* scores;     // [kBlock][TileKeys]
  Bf16* p;           // [kBlock][TileKeys]
  float* out;        // [kQueryTile][64]
  float* reference;  // [kQueryTile]
  float* sum;        // [kQueryTile]
  size_t bytes;
};

// Null memory: only to learn the bytes.
Scratch LayOut(const AttentionShape& shape, const Layout& layout, void* memory) {
  auto* const base = static_cast<char*>(memory);
  size_t used = 0;
  const auto take = [base, &used](size_t bytes) -> void* {
    char* taken = base != nullptr ? base + used : nullptr;
    used += (bytes + 63) / 64 * 64;
    return taken;
  };
  const size_t rel = shape.relative ? static_cast<size_t>(kQueryTile) * RelPosRows(shape.rows) : 0;
  const size_t keys = layout.tile_keys;
  Scratch s = {};
  s.q = static_cast<Bf16*>(take(kQueryTile * kHead * sizeof(Bf16)));
  s.rel_h = static_cast<float*>(take(rel * sizeof(float)));
  s.rel_w = static_cast<float*>(take(rel * sizeof(float)));
  s.bias =
      static_cast<float*>(take(static_cast<size_t>(kQueryTile) * layout.stride * sizeof(float)));
  s.scores = static_cast<float*>(take(kBlock * keys * sizeof(float)));
  s.p = static_cast<Bf16*>(take(kBlock * keys * sizeof(Bf16)));
  s.out = static_cast<float*>(take(kQueryTile * kHead * sizeof(float)));
  s.reference = static_cast<float*>(take(kQueryTile * sizeof(float)));
  s.sum = static_cast<float*>(take(kQueryTile * sizeof(float)));
  s.bytes = used;
  return s;
}
size_t ScratchBytes(const AttentionShape& shape) {
  return LayOut(shape, LayoutOf(shape), nullptr).bytes;
}

// ---------------------------------------------------------------- packing

// to[i][j] = from[j][i] of 32-bit values.
void Transpose(const __m512i from[kTile], Bf16* to) {
  __m512i a[kTile], b[kTile];
  for (int i = 0; i < kTile;
       i += 2) {  // pairs of rows: a quarter register holds two columns of two
    a[i] = _mm512_unpacklo_epi32(from[i], from[i + 1]);
    a[i + 1] = _mm512_unpackhi_epi32(from[i], from[i + 1]);
  }
  for (int i = 0; i < kTile; i += 4) {  // fours: b[i + c], quarter q: column 4q + c of rows i..i+3
    b[i] = _mm512_unpacklo_epi64(a[i], a[i + 2]);
    b[i + 1] = _mm512_unpackhi_epi64(a[i], a[i + 2]);
    b[i + 2] = _mm512_unpacklo_epi64(a[i + 1], a[i + 3]);
    b[i + 3] = _mm512_unpackhi_epi64(a[i + 1], a[i + 3]);
  }
  for (int c = 0; c < 4; ++c) {  // and the quarters of four such registers
    const __m512i low_even = _mm512_shuffle_i32x4(b[c], b[4 + c], 0x88);  // quarters 0, 2
    const __m512i low_odd = _mm512_shuffle_i32x4(b[c], b[4 + c], 0xDD);   // quarters 1, 3
    const __m512i high_even = _mm512_shuffle_i32x4(b[8 + c], b[12 + c], 0x88);
    const __m512i high_odd = _mm512_shuffle_i32x4(b[8 + c], b[12 + c], 0xDD);
    _mm512_storeu_si512(to + (0 + c) * 32, _mm512_shuffle_i32x4(low_even, high_even, 0x88));
    _mm512_storeu_si512(to + (4 + c) * 32, _mm512_shuffle_i32x4(low_odd, high_odd, 0x88));
    _mm512_storeu_si512(to + (8 + c) * 32, _mm512_shuffle_i32x4(low_even, high_even, 0xDD));
    _mm512_storeu_si512(to + (12 + c) * 32, _mm512_shuffle_i32x4(low_odd, high_odd, 0xDD));
  }
}

// 16 rows of 64 values become the two tiles (values 0..31, 32..63) of a right side whose columns
// they are: tile[pair][row] = values 2*pair, 2*pair + 1 of the row. Null rows are zeros.
void PackColumns(const Bf16* const rows[kTile], Bf16* first, Bf16* second) {
  __m512i values[kTile];
  for (int half = 0; half < 2; ++half) {
    for (int r = 0; r < kTile; ++r) {
      values[r] =
          rows[r] != nullptr ? _mm512_loadu_si512(rows[r] + 32 * half) : _mm512_setzero_si512();
    }
    Transpose(values, half == 0 ? first : second);
  }
}

// Two rows of 64 values become one row of each of the four tiles (columns 0..15, ...) of a right
// side whose rows they are: tile[pair][column] = the column's value in both rows.
void PackRowPair(const Bf16* even, const Bf16* odd, Bf16* tiles) {
  for (int half = 0; half < 2; ++half) {
    const __m512i a =
        even != nullptr ? _mm512_loadu_si512(even + 32 * half) : _mm512_setzero_si512();
    const __m512i b = odd != nullptr ? _mm512_loadu_si512(odd + 32 * half) : _mm512_setzero_si512();
    for (int quarter = 0; quarter < 2; ++quarter) {
      const __m512i a32 = _mm512_cvtepu16_epi32(quarter == 0 ? _mm512_castsi512_si256(a)
                                                             : _mm512_extracti64x4_epi64(a, 1));
      const __m512i b32 = _mm512_cvtepu16_epi32(quarter == 0 ? _mm512_castsi512_si256(b)
                                                             : _mm512_extracti64x4_epi64(b, 1));
      _mm512_storeu_si512(tiles + (2 * half + quarter) * kTileElements,
                          _mm512_or_si512(a32, _mm512_slli_epi32(b32, 16)));
    }
  }
}

// Keys: a block of 32 is four tiles, [values 0..31, 32..63][keys 0..15, 16..31]. Values: a block of
// 32 keys is four tiles of 16 columns.
void PackKeyTile(const AttentionShape& shape, const void* const* qkv, int head, int tile,
                 void* packed) {
  const Layout layout = LayoutOf(shape);
  const int keys = layout.tile_keys;
  Bf16* k = static_cast<Bf16*>(packed) + size_t{2} * tile * keys * kHead;
  Bf16* v = k + static_cast<size_t>(keys) * kHead;
  for (int first = 0; first < keys; first += kTile) {
    const Bf16* key_rows[kTile];
    const Bf16* value_rows[kTile];
    for (int i = 0; i < kTile; ++i) {
      const int key = first + i;
      const int y = tile * layout.tile_rows + key / layout.stride, x = key % layout.stride;
      const bool live = key < layout.grid_keys && x < shape.columns;
      const Bf16* row =
          live ? static_cast<const Bf16*>(qkv[y * shape.columns + x]) + head * kHead : nullptr;
      key_rows[i] = live ? row + shape.width : nullptr;
      value_rows[i] = live ? row + 2 * shape.width : nullptr;
    }
    const size_t block = static_cast<size_t>(first / kBlock) * 4 * kTileElements;
    const int half = first / kTile % 2;
    PackColumns(key_rows, k + block + half * kTileElements, k + block + (2 + half) * kTileElements);
    for (int i = 0; i < kTile; i += 2) {
      const int pair = (half * kTile + i) / 2;
      PackRowPair(value_rows[i], value_rows[i + 1], v + block + pair * 32);
    }
  }
}

Bf16 ToBf16(float value) {
  unsigned bits;
  __builtin_memcpy(&bits, &value, sizeof bits);
  return static_cast<Bf16>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
}

// Reversed, so that the entries of one query are in the order of the keys; in the layout of keys.
void PackRelPos(const float* table, int length, void* packed) {
  const int used = 2 * length - 1, rows = RelPosRows(length);
  for (int first = 0; first < rows; first += kTile) {
    Bf16 values[kTile][kHead];
    const Bf16* pointers[kTile];
    for (int i = 0; i < kTile; ++i) {
      const int row = used - 1 - (first + i);
      for (int d = 0; row >= 0 && d < kHead; ++d) values[i][d] = ToBf16(table[row * kHead + d]);
      pointers[i] = row >= 0 ? values[i] : nullptr;
    }
    Bf16* block =
        static_cast<Bf16*>(packed) + static_cast<size_t>(first / kBlock) * 4 * kTileElements;
    const int half = first / kTile % 2;
    PackColumns(pointers, block + half * kTileElements, block + (2 + half) * kTileElements);
  }
}

// ---------------------------------------------------------------- products

struct alignas(64) TileConfig {
  unsigned char palette = 1;
  unsigned char start_row = 0;
  unsigned char reserved[14] = {};
  unsigned short row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  unsigned char rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

// The four products of a 2 x 2 block: sums 0..3 += left 4, 5 times right 6, 7.
[[gnu::always_inline]] inline void MultiplyBlock() {
  _tile_dpbf16ps(0, 4, 6);
  _tile_dpbf16ps(1, 4, 7);
  _tile_dpbf16ps(2, 5, 6);
  _tile_dpbf16ps(3, 5, 7);
}

// c[32][columns] = q[32][64] times columns in the layout of keys; columns a multiple of 32.
void TimesColumns(const Bf16* q, const Bf16* packed, int columns, float* c, int ldc) {
  const long c_bytes = static_cast<long>(ldc) * 4;
  for (int first = 0; first < columns; first += kBlock) {
    const Bf16* block = packed + static_cast<size_t>(first) * kHead;
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (int half = 0; half < 2; ++half) {
      _tile_loadd(4, q + 32 * half, kHead * 2);
      _tile_loadd(5, q + kTile * kHead + 32 * half, kHead * 2);
      _tile_loadd(6, block + 2 * half * kTileElements, 64);
      _tile_loadd(7, block + (2 * half + 1) * kTileElements, 64);
      MultiplyBlock();
    }
    float* to = c + first;
    _tile_stored(0, to, c_bytes);
    _tile_stored(1, to + kTile, c_bytes);
    _tile_stored(2, to + static_cast<size_t>(kTile) * ldc, c_bytes);
    _tile_stored(3, to + static_cast<size_t>(kTile) * ldc + kTile, c_bytes);
  }
}

// out[32][64] += p[32][keys] v[keys][64]
void AddWeightedValues(const Bf16* p, const Bf16* v, int keys, float* out) {
  const long p_bytes = static_cast<long>(keys) * 2;
  for (int half = 0; half < 2; ++half) {
    float* to = out + 32 * half;
    _tile_loadd(0, to, kHead * 4);
    _tile_loadd(1, to + kTile, kHead * 4);
    _tile_loadd(2, to + kTile * kHead, kHead * 4);
    _tile_loadd(3, to + kTile * kHead + kTile, kHead * 4);
    for (int first = 0; first < keys; first += kBlock) {
      const Bf16* tiles = v + static_cast<size_t>(first) * kHead + 2 * half * kTileElements;
      _tile_loadd(4, p + first, p_bytes);
      _tile_loadd(5, p + static_cast<size_t>(kTile) * keys + first, p_bytes);
      _tile_loadd(6, tiles, 64);
      _tile_loadd(7, tiles + kTileElements, 64);
      MultiplyBlock();
    }
    _tile_stored(0, to, kHead * 4);
    _tile_stored(1, to + kTile, kHead * 4);
    _tile_stored(2, to + kTile * kHead, kHead * 4);
    _tile_stored(3, to + kTile * kHead + kTile, kHead * 4);
  }
}

// ---------------------------------------------------------------- softmax

// 2^x to 2.6e-6, a thousandth of what rounding to bf16 costs; 0 for kDead.
[[gnu::always_inline]] inline __m512 Exp2(__m512 x) {
  const __m512 f = _mm512_reduce_ps(x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);  // x - floor(x)
  // Least relative error of the fourth degree on [0, 1].
  __m512 p = _mm512_set1_ps(0.0135341677f);
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0.0520114609f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0.241442757f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0.693003835f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(1.00000259f));
  return _mm512_scalef_ps(p, x);  // times 2^floor(x)
}

// What is added to the scores of one query.
struct RowBias {
  const float* columns;  // [stride], times log2(e)
  const float* rows;     // [tile_rows], or null: zeros
  float row(int y) const { return rows != nullptr ? rows[y] * kLog2E : 0.0f; }
};

// Calls visit(at, x) for every register of scores of one query: x = their exponents of 2, less
// `reference`. With kVectors > 0, the registers of a grid row, the columns' biases stay in
// registers.
template <int kVectors, class Visit>
[[gnu::always_inline]] inline void ForExponents(const float* scores, const RowBias& bias, int rows,
                                                int stride, float reference, const Visit& visit) {
  const __m512 scale = _mm512_set1_ps(kScale);
  __m512 columns[kVectors + (kVectors == 0)];  // of one at least: C++ has no empty arrays
  for (int v = 0; v < kVectors; ++v) columns[v] = _mm512_loadu_ps(bias.columns + v * kTile);
  const int vectors = kVectors > 0 ? kVectors : stride / kTile;
  for (int y = 0; y < rows; ++y) {
    const __m512 row_bias = _mm512_set1_ps(bias.row(y) - reference);
    const int start = y * vectors * kTile;
#pragma GCC unroll 5
    for (int v = 0; v < vectors; ++v) {
      __m512 column;
      if constexpr (kVectors > 0) {
        column = columns[v];
      } else {
        column = _mm512_loadu_ps(bias.columns + v * kTile);
      }
      const int at = start + v * kTile;
      visit(at,
            _mm512_fmadd_ps(_mm512_loadu_ps(scores + at), scale, _mm512_add_ps(column, row_bias)));
    }
  }
}

float LargestExponent(const float* scores, const RowBias& bias, int rows, int stride) {
  __m512 largest = _mm512_set1_ps(kDead);
  ForExponents<0>(scores, bias, rows, stride, 0.0f,
                  [&](int, __m512 x) { largest = _mm512_max_ps(largest, x); });
  return _mm512_reduce_max_ps(largest);
}

// p = 2^(exponent - reference); returns the sum.
template <int kVectors>
float Exponentiate(const float* scores, const RowBias& bias, int rows, int stride, float reference,
                   Bf16* p) {
  __m512 total = _mm512_setzero_ps();
  ForExponents<kVectors>(scores, bias, rows, stride, reference, [&](int at, __m512 x) {
    const __m512 value = Exp2(x);
    total = _mm512_add_ps(total, value);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p + at), (__m256i)_mm512_cvtneps_pbh(value));
  });
  return _mm512_reduce_add_ps(total);
}

void ScaleRow(float* row, float factor) {
  const __m512 by = _mm512_set1_ps(factor);
  for (int d = 0; d < kHead; d += kTile) {
    _mm512_storeu_ps(row + d, _mm512_mul_ps(_mm512_loadu_ps(row + d), by));
  }
}

// Probabilities of the 32 queries from `first` for one key tile.
template <int kVectors>
void OnlineSoftmax(const AttentionShape& shape, const Layout& layout, const QueryTile& queries,
                   int first, int tile, const Scratch& s) {
  const int stride = layout.stride, rows = layout.tile_rows, rel_rows = RelPosRows(shape.rows);
  const int end = queries.count - first < kBlock ? queries.count - first : kBlock;
  for (int i = 0; i < end; ++i) {
    const int query = first + i;
    RowBias bias = {s.bias + static_cast<size_t>(query) * stride, nullptr};
    if (shape.relative) {
      bias.rows = s.rel_h + static_cast<size_t>(query) * rel_rows +
                  (shape.rows - 1 - queries.y[query]) + tile * rows;
    }
    const float* scores = s.scores + static_cast<size_t>(i) * layout.tile_keys;
    Bf16* p = s.p + static_cast<size_t>(i) * layout.tile_keys;
    float& reference = s.reference[query];
    if (tile == 0) reference = LargestExponent(scores, bias, rows, stride);
    float sum = Exponentiate<kVectors>(scores, bias, rows, stride, reference, p);
    if (sum > kMostSum) {  // also when it overflowed
      const float largest = LargestExponent(scores, bias, rows, stride);
      const float factor = _mm512_cvtss_f32(Exp2(_mm512_set1_ps(reference - largest)));
      s.sum[query] *= factor;
      ScaleRow(s.out + query * kHead, factor);
      reference = largest;
      sum = Exponentiate<kVectors>(scores, bias, rows, stride, reference, p);
    }
    s.sum[query] += sum;
  }
}

using SoftmaxStep = void (*)(const AttentionShape&, const Layout&, const QueryTile&, int, int,
                             const Scratch&);
SoftmaxStep SoftmaxFor(const Layout& layout) {
  switch (layout.stride / kTile) {
    case 1:
      return OnlineSoftmax<1>;
    case 2:
      return OnlineSoftmax<2>;
    case 3:
      return OnlineSoftmax<3>;
    case 4:
      return OnlineSoftmax<4>;
    case 5:
      return OnlineSoftmax<5>;
    default:
      return OnlineSoftmax<0>;
  }
}

// ---------------------------------------------------------------- one tile of queries

// rel_h and rel_w of every query, and the bias of each key column.
void RelativePositions(const AttentionShape& shape, const Layout& layout, const QueryTile& queries,
                       const RelPosPair& tables, const Scratch& s) {
  const int columns = RelPosRows(shape.rows);
  for (int first = 0; shape.relative && first < queries.count; first += kBlock) {
    const Bf16* q = s.q + first * kHead;
    const size_t row = static_cast<size_t>(first) * columns;
    TimesColumns(q, static_cast<const Bf16*>(tables.h), columns, s.rel_h + row, columns);
    TimesColumns(q, static_cast<const Bf16*>(tables.w), columns, s.rel_w + row, columns);
  }
  for (int i = 0; i < queries.count; ++i) {
    float* bias = s.bias + static_cast<size_t>(i) * layout.stride;
    if (shape.relative) {
      const float* rel_w =
          s.rel_w + static_cast<size_t>(i) * columns + (shape.columns - 1 - queries.x[i]);
      for (int x = 0; x < shape.columns; ++x) bias[x] = rel_w[x] * kLog2E;
    } else {
      for (int x = 0; x < shape.columns; ++x) bias[x] = 0.0f;
    }
    for (int x = shape.columns; x < layout.stride; ++x) bias[x] = kDead;
  }
}

void StoreRow(const float* row, float factor, Bf16* out) {
  const __m512 by = _mm512_set1_ps(factor);
  for (int d = 0; d < kHead; d += kTile) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + d),
                        (__m256i)_mm512_cvtneps_pbh(_mm512_mul_ps(_mm512_loadu_ps(row + d), by)));
  }
}

[[gnu::nonnull]] void Attend(const AttentionShape& shape, int head, const QueryTile& queries,
                             const void* packed, const RelPosPair& tables, void* scratch) {
  const TileConfig config;
  _tile_loadconfig(&config);
  const Layout layout = LayoutOf(shape);
  const Scratch s = LayOut(shape, layout, scratch);
  const SoftmaxStep softmax = SoftmaxFor(layout);
  const int keys = layout.tile_keys;
  // Rows of no query may hold anything: they mix with no other. Keys of no place must be 0.
  __builtin_memset(s.out, 0, kQueryTile * kHead * sizeof(float));
  __builtin_memset(s.sum, 0, kQueryTile * sizeof(float));
  if (layout.grid_keys < keys) {
    __builtin_memset(s.p, 0, static_cast<size_t>(kBlock) * keys * sizeof(Bf16));
  }
  for (int i = 0; i < queries.count; ++i) {
    __builtin_memcpy(s.q + i * kHead, static_cast<const Bf16*>(queries.qkv[i]) + head * kHead,
                     kHead * sizeof(Bf16));
  }
  RelativePositions(shape, layout, queries, tables, s);
  for (int tile = 0; tile < layout.tiles; ++tile) {
    const Bf16* k = static_cast<const Bf16*>(packed) + size_t{2} * tile * keys * kHead;
    const Bf16* v = k + static_cast<size_t>(keys) * kHead;
    for (int first = 0; first < queries.count; first += kBlock) {
      TimesColumns(s.q + first * kHead, k, keys, s.scores, keys);
      softmax(shape, layout, queries, first, tile, s);
      AddWeightedValues(s.p, v, keys, s.out + first * kHead);
    }
  }
  for (int i = 0; i < queries.count; ++i) {
    StoreRow(s.out + i * kHead, 1.0f / s.sum[i], static_cast<Bf16*>(queries.out[i]) + head * kHead);
  }
  _tile_release();
}

}  // namespace

const AttentionKernel kAttention = {.query_tile = kQueryTile,
                                    .key_tiles = KeyTiles,
                                    .packed_bytes = PackedBytes,
                                    .pack_key_tile = PackKeyTile,
                                    .rel_pos_bytes = RelPosBytes,
                                    .pack_rel_pos = PackRelPos,
                                    .scratch_bytes = ScratchBytes,
                                    .attend = Attend};

}  // namespace deepencoder::cpu::amx
