#include "encoder/cpu/attention.h"
#include "encoder/cpu/parallel.h"
#include "encoder/cpu/query_tile.h"
#include "encoder/cpu/workspace.h"
#include "encoder/model/config.h"

namespace deepencoder::cpu {
namespace {

size_t Aligned(size_t bytes) { return (bytes + 63) / 64 * 64; }

}  // namespace

size_t WindowScratchBytes(const AttentionKernel& kernel) {
  const AttentionShape shape = WindowShape();
  return Aligned(kernel.packed_bytes(shape)) + kernel.scratch_bytes(shape);
}

void WindowAttention(const AttentionKernel& kernel, size_t element_bytes, int grid,
                     const std::byte* qkv, const std::byte* padding, const RelPosPair& tables,
                     std::byte* out, Workspace& workspace) {
  const AttentionShape shape = WindowShape();
  const size_t row_bytes = size_t{kSamWidth} * element_bytes;
  const int windows_a_side = (grid + kWindow - 1) / kWindow;

  const auto attend = [&](int window, int head, std::byte* scratch) {
    const int top = window / windows_a_side * kWindow, left = window % windows_a_side * kWindow;
    const auto token_at = [&](int y, int x) {
      return static_cast<size_t>(top + y) * grid + (left + x);
    };
    const auto is_token = [&](int y, int x) { return top + y < grid && left + x < grid; };

    const void* keys[kWindow * kWindow];
    for (int y = 0; y < kWindow; ++y) {
      for (int x = 0; x < kWindow; ++x) {
        keys[y * kWindow + x] = is_token(y, x) ? qkv + token_at(y, x) * 3 * row_bytes : padding;
      }
    }
    std::byte* packed = scratch;
    std::byte* rest = scratch + Aligned(kernel.packed_bytes(shape));
    for (int tile = 0; tile < kernel.key_tiles(shape); ++tile) {
      kernel.pack_key_tile(shape, keys, head, tile, packed);
    }

    QueryTileBuilder queries;
    const auto flush = [&] {
      if (queries.count() > 0) kernel.attend(shape, head, queries.tile(), packed, tables, rest);
      queries.Clear();
    };
    for (int y = 0; y < kWindow; ++y) {
      for (int x = 0; x < kWindow; ++x) {
        if (!is_token(y, x)) continue;
        const size_t token = token_at(y, x);
        queries.Add(qkv + token * 3 * row_bytes, out + token * row_bytes, y, x);
        if (queries.count() == kernel.query_tile) flush();
      }
    }
    flush();
  };

  ParallelFor(windows_a_side * windows_a_side * kSamHeads, [&](int task, int thread) {
    attend(task / kSamHeads, task % kSamHeads, workspace.thread_scratch(thread));
  });
}

}  // namespace deepencoder::cpu
