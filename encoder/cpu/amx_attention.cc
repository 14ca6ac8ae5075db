// Attention of bf16 on AMX tiles: 16 rows of 64 bytes, products of 16 x 32 by 32 x 16 bf16 into floats.
//
//   rel  [q][2L-1]  = Q Rh^T, Q Rw^T              once a query tile; read back skewed
//   S    [q][keys]  = Q K^T                       a key tile: a few whole rows of the key grid
//   P    (bf16)     = 2^(S * log2(e)/8 + rel_h + rel_w - reference)     rel already times log2(e)
//   O    [q][64]   += P V
//
// The reference of a query is its largest score so far only to within 2^kSlack: it moves, and O is scaled,
// when a key tile brings a score so much larger; floats and bf16 have the range to spare. So the usual key
// tile costs one pass over its scores. Rows of the key grid are padded to 16 keys, whose bias is kDead.
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
constexpr float kDead = -1e30f;  // finite: no inf - inf
constexpr float kSlack = 40.0f;  // 2^40 times the largest sum of 6400 terms is far from overflow

constexpr int RoundUp(int value, int multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// ---------------------------------------------------------------- layout

int Stride(const AttentionShape& shape) {
  return RoundUp(shape.columns, shape.rows == 1 ? kBlock : kTile);
}

// Grid rows a key tile: they divide the grid and fill whole blocks of 32 keys where any number does.
int TileGridRows(const AttentionShape& shape) {
  const int stride = Stride(shape);
  for (int rows = shape.rows; rows > 1; --rows) {
    if (shape.rows % rows == 0 && rows * stride <= kMaxTileKeys && rows * stride % kBlock == 0)
      return rows;
  }
  return stride % kBlock == 0 ? 1 : shape.rows;
}
// Keys of a tile that have a place in the grid, padding of its rows included, and with the padding at the end.
int GridKeys(const AttentionShape& shape) { return TileGridRows(shape) * Stride(shape); }
int TileKeys(const AttentionShape& shape) { return RoundUp(GridKeys(shape), kBlock); }
int KeyTiles(const AttentionShape& shape) { return shape.rows / TileGridRows(shape); }
size_t PackedBytes(const AttentionShape& shape) {
  return size_t{2} * KeyTiles(shape) * TileKeys(shape) * kHead * sizeof(Bf16);
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
Scratch LayOut(const AttentionShape& shape, void* memory) {
  auto* const base = static_cast<char*>(memory);
  size_t used = 0;
  const auto take = [base, &used](size_t bytes) -> void* {
    char* taken = base != nullptr ? base + used : nullptr;
    used += (bytes + 63) / 64 * 64;
    return taken;
  };
  const size_t rel = shape.relative ? static_cast<size_t>(kQueryTile) * RelPosRows(shape.rows) : 0;
  const size_t keys = TileKeys(shape);
  Scratch s = {};
  s.q = static_cast<Bf16*>(take(kQueryTile * kHead * sizeof(Bf16)));
  s.rel_h = static_cast<float*>(take(rel * sizeof(float)));
  s.rel_w = static_cast<float*>(take(rel * sizeof(float)));
  s.bias =
      static_cast<float*>(take(static_cast<size_t>(kQueryTile) * Stride(shape) * sizeof(float)));
  s.scores = static_cast<float*>(take(kBlock * keys * sizeof(float)));
  s.p = static_cast<Bf16*>(take(kBlock * keys * sizeof(Bf16)));
  s.out = static_cast<float*>(take(kQueryTile * kHead * sizeof(float)));
  s.reference = static_cast<float*>(take(kQueryTile * sizeof(float)));
  s.sum = static_cast<float*>(take(kQueryTile * sizeof(float)));
  s.bytes = used;
  return s;
}
size_t ScratchBytes(const AttentionShape& shape) { return LayOut(shape, nullptr).bytes; }

// ---------------------------------------------------------------- packing

// 16 rows of 64 values become the two tiles (values 0..31, 32..63) of a right side whose columns they
// are: tile[pair][row] = values 2*pair, 2*pair + 1 of the row. Null rows are zeros.
void PackColumns(const Bf16* const rows[kTile], Bf16* first, Bf16* second) {
  const __m512i places =
      _mm512_mullo_epi32(_mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0),
                         _mm512_set1_epi32(16));
  for (int r = 0; r < kTile; ++r) {
    const __m512i low = rows[r] != nullptr ? _mm512_loadu_si512(rows[r]) : _mm512_setzero_si512();
    const __m512i high =
        rows[r] != nullptr ? _mm512_loadu_si512(rows[r] + 32) : _mm512_setzero_si512();
    _mm512_i32scatter_epi32(first + 2 * r, places, low, 4);
    _mm512_i32scatter_epi32(second + 2 * r, places, high, 4);
  }
}

// Two rows of 64 values become one row of each of the four tiles (columns 0..15, ...) of a right side whose
// rows they are: tile[pair][column] = the column's value in both rows.
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

// Keys: a block of 32 is four tiles, [values 0..31, 32..63][keys 0..15, 16..31]. Values: a block of 32 keys
// is four tiles of 16 columns.
void PackKeyTile(const AttentionShape& shape, const void* const* qkv, int head, int tile,
                 void* packed) {
  const int keys = TileKeys(shape), stride = Stride(shape), rows = TileGridRows(shape);
  const int grid_keys = GridKeys(shape);
  Bf16* k = static_cast<Bf16*>(packed) + size_t{2} * tile * keys * kHead;
  Bf16* v = k + static_cast<size_t>(keys) * kHead;
  for (int first = 0; first < keys; first += kTile) {
    const Bf16* key_rows[kTile];
    const Bf16* value_rows[kTile];
    for (int i = 0; i < kTile; ++i) {
      const int key = first + i, y = tile * rows + key / stride, x = key % stride;
      const bool live = key < grid_keys && x < shape.columns;
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
  const __m512 n = _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  const __m512 f = _mm512_sub_ps(x, n);
  // Least relative error of the fourth degree on |f| <= 1/2.
  __m512 p = _mm512_set1_ps(9.5701e-3f);
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(5.591786e-2f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0.24024745f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0.69312181f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0.99999926f));
  return _mm512_scalef_ps(p, n);
}

struct RowBias {
  const float* columns;  // [Stride]
  const float* rows;     // [TileGridRows], or null: zeros
};

[[gnu::always_inline]] inline __m512 Exponent(const float* scores, const float* column_bias,
                                              __m512 row_bias) {
  return _mm512_fmadd_ps(_mm512_loadu_ps(scores), _mm512_set1_ps(kScale),
                         _mm512_add_ps(_mm512_loadu_ps(column_bias), row_bias));
}

float LargestExponent(const float* scores, const RowBias& bias, int rows, int stride) {
  __m512 largest = _mm512_set1_ps(kDead);
  for (int y = 0; y < rows; ++y) {
    const __m512 row_bias = _mm512_set1_ps(bias.rows != nullptr ? bias.rows[y] : 0.0f);
    for (int x = 0; x < stride; x += kTile) {
      largest =
          _mm512_max_ps(largest, Exponent(scores + y * stride + x, bias.columns + x, row_bias));
    }
  }
  return _mm512_reduce_max_ps(largest);
}

// Writes 2^(exponent - reference) and adds up; returns the largest exponent - reference.
float Exponentiate(const float* scores, const RowBias& bias, int rows, int stride, float reference,
                   Bf16* p, float* sum) {
  __m512 largest = _mm512_set1_ps(kDead), total = _mm512_setzero_ps();
  for (int y = 0; y < rows; ++y) {
    const __m512 row_bias =
        _mm512_set1_ps((bias.rows != nullptr ? bias.rows[y] : 0.0f) - reference);
    for (int x = 0; x < stride; x += kTile) {
      const int at = y * stride + x;
      const __m512 exponent = Exponent(scores + at, bias.columns + x, row_bias);
      const __m512 value = Exp2(exponent);
      largest = _mm512_max_ps(largest, exponent);
      total = _mm512_add_ps(total, value);
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(p + at), (__m256i)_mm512_cvtneps_pbh(value));
    }
  }
  *sum = _mm512_reduce_add_ps(total);
  return _mm512_reduce_max_ps(largest);
}

void ScaleRow(float* row, float factor) {
  const __m512 by = _mm512_set1_ps(factor);
  for (int d = 0; d < kHead; d += kTile) {
    _mm512_storeu_ps(row + d, _mm512_mul_ps(_mm512_loadu_ps(row + d), by));
  }
}

// Probabilities of the 32 queries from `first` for one key tile.
void OnlineSoftmax(const AttentionShape& shape, const QueryTile& queries, int first, int tile,
                   const Scratch& s) {
  const int stride = Stride(shape), rows = TileGridRows(shape), keys = TileKeys(shape);
  const int rel_rows = RelPosRows(shape.rows);
  const int end = queries.count - first < kBlock ? queries.count - first : kBlock;
  for (int i = 0; i < end; ++i) {
    const int query = first + i;
    RowBias bias = {s.bias + static_cast<size_t>(query) * stride, nullptr};
    if (shape.relative) {
      bias.rows = s.rel_h + static_cast<size_t>(query) * rel_rows +
                  (shape.rows - 1 - queries.y[query]) + tile * rows;
    }
    const float* scores = s.scores + static_cast<size_t>(i) * keys;
    Bf16* p = s.p + static_cast<size_t>(i) * keys;
    if (tile == 0) s.reference[query] = LargestExponent(scores, bias, rows, stride);
    float sum = 0.0f;
    const float excess = Exponentiate(scores, bias, rows, stride, s.reference[query], p, &sum);
    if (excess > kSlack) {
      const __m512 factor = Exp2(_mm512_set1_ps(-excess));
      s.sum[query] *= _mm512_cvtss_f32(factor);
      ScaleRow(s.out + query * kHead, _mm512_cvtss_f32(factor));
      s.reference[query] += excess;
      Exponentiate(scores, bias, rows, stride, s.reference[query], p, &sum);
    }
    s.sum[query] += sum;
  }
}

// ---------------------------------------------------------------- one tile of queries

// rel_h and rel_w of every query, times log2(e), and the bias of each key column.
void RelativePositions(const AttentionShape& shape, const QueryTile& queries,
                       const RelPosPair& tables, const Scratch& s) {
  const int stride = Stride(shape), columns = RelPosRows(shape.rows);
  if (shape.relative) {
    for (int first = 0; first < queries.count; first += kBlock) {
      const size_t row = static_cast<size_t>(first) * columns;
      TimesColumns(s.q + first * kHead, static_cast<const Bf16*>(tables.h), columns, s.rel_h + row,
                   columns);
      TimesColumns(s.q + first * kHead, static_cast<const Bf16*>(tables.w), columns, s.rel_w + row,
                   columns);
    }
  }
  for (int i = 0; i < queries.count; ++i) {
    float* bias = s.bias + static_cast<size_t>(i) * stride;
    const size_t row = static_cast<size_t>(i) * columns;
    for (int x = 0; x < stride; ++x) bias[x] = x < shape.columns ? 0.0f : kDead;
    if (!shape.relative) continue;
    const float* rel_w = s.rel_w + row + (shape.columns - 1 - queries.x[i]);
    for (int x = 0; x < shape.columns; ++x) bias[x] = rel_w[x] * kLog2E;
    for (int j = 0; j < columns; ++j) s.rel_h[row + j] *= kLog2E;
  }
}

void StoreRow(const float* row, float factor, Bf16* out) {
  const __m512 by = _mm512_set1_ps(factor);
  for (int d = 0; d < kHead; d += kTile) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + d),
                        (__m256i)_mm512_cvtneps_pbh(_mm512_mul_ps(_mm512_loadu_ps(row + d), by)));
  }
}

void Attend(const AttentionShape& shape, int head, const QueryTile& queries, const void* packed,
            const RelPosPair& tables, void* scratch) {
  const TileConfig config;
  _tile_loadconfig(&config);
  const Scratch s = LayOut(shape, scratch);
  const int keys = TileKeys(shape);
  __builtin_memset(s.q, 0, kQueryTile * kHead * sizeof(Bf16));
  __builtin_memset(s.out, 0, kQueryTile * kHead * sizeof(float));
  __builtin_memset(s.sum, 0, kQueryTile * sizeof(float));
  __builtin_memset(s.p, 0,
                   static_cast<size_t>(kBlock) * keys * sizeof(Bf16));  // rows and keys of no query
  for (int i = 0; i < queries.count; ++i) {
    __builtin_memcpy(s.q + i * kHead, static_cast<const Bf16*>(queries.qkv[i]) + head * kHead,
                     kHead * sizeof(Bf16));
  }
  RelativePositions(shape, queries, tables, s);
  for (int tile = 0; tile < KeyTiles(shape); ++tile) {
    const Bf16* k = static_cast<const Bf16*>(packed) + size_t{2} * tile * keys * kHead;
    const Bf16* v = k + static_cast<size_t>(keys) * kHead;
    for (int first = 0; first < queries.count; first += kBlock) {
      TimesColumns(s.q + first * kHead, k, keys, s.scores, keys);
      OnlineSoftmax(shape, queries, first, tile, s);
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
