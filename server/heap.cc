#include "server/heap.h"

#include <malloc.h>

#include <cstddef>

namespace deepencoder {
namespace {

// A fresh mapping costs a page fault for each 4 KiB. The rows of most pages stay below: 2.2 MiB in bf16 for one of
// six tiles, 3.0 MiB for nine.
constexpr int kMapped = 4 << 20;
// What stays free at an arena's end, so that such rows come from memory that is there already.
constexpr int kKeptAtEnd = 8 << 20;
// More than this is given back: what lies free between blocks that stay grows for an hour or so otherwise.
constexpr size_t kKeptFree = size_t{4} << 20;

}  // namespace

void SetUpHeap() {
  mallopt(M_MMAP_THRESHOLD, kMapped);
  mallopt(M_TRIM_THRESHOLD, kKeptAtEnd);
}

void TrimHeap() {
  if (mallinfo2().fordblks > kKeptFree) malloc_trim(0);
}

}  // namespace deepencoder
