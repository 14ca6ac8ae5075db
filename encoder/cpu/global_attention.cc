#include <algorithm>

#include "encoder/cpu/attention.h"
#include "encoder/cpu/parallel.h"
#include "encoder/cpu/query_tile.h"
#include "encoder/cpu/workspace.h"

namespace deepencoder::cpu {

void GlobalAttention(const AttentionKernel& kernel, size_t element_bytes,
                     const AttentionShape& shape, int heads, const std::byte* qkv,
                     const RelPosPair& tables, std::byte* out, Workspace& workspace) {
  const int tokens = shape.rows * shape.columns;
  const size_t row_bytes = shape.width * element_bytes;
  for (int token = 0; token < tokens; ++token) workspace.rows[token] = qkv + token * 3 * row_bytes;

  const size_t packed_bytes = kernel.packed_bytes(shape);
  const int key_tiles = kernel.key_tiles(shape);
  ParallelFor(heads * key_tiles, [&](int task, int) {
    const int head = task / key_tiles;
    kernel.pack_key_tile(shape, workspace.rows, head, task % key_tiles,
                         workspace.packed + head * packed_bytes);
  });

  // Head by head, so that the keys and values in use stay in the cache.
  const int query_tiles = (tokens + kernel.query_tile - 1) / kernel.query_tile;
  ParallelFor(heads * query_tiles, [&](int task, int thread) {
    const int head = task / query_tiles;
    const int first = task % query_tiles * kernel.query_tile;
    QueryTileBuilder queries;
    for (int token = first; token < std::min(tokens, first + kernel.query_tile); ++token) {
      queries.Add(qkv + token * 3 * row_bytes, out + token * row_bytes, token / shape.columns,
                  token % shape.columns);
    }
    kernel.attend(shape, head, queries.tile(), workspace.packed + head * packed_bytes, tables,
                  workspace.thread_scratch(thread));
  });
}

}  // namespace deepencoder::cpu
