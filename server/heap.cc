#include "server/heap.h"

#ifdef DEEPENCODER_JEMALLOC
#include <jemalloc/jemalloc.h>

#include <cstdint>

#define DEEPENCODER_TEXT_OF(number) #number
#define DEEPENCODER_TEXT(number) DEEPENCODER_TEXT_OF(number)
#define DEEPENCODER_ALL_ARENAS DEEPENCODER_TEXT(MALLCTL_ARENAS_ALL)

// What jemalloc looks for as it starts.
//
// background_thread, max_background_threads: one thread gives back what has been free for long enough, whether or not
//   anything is allocated.
// dirty_decay_ms: over this time. Longer than the pause between two batches at any load that matters, so that a busy
//   server's rows and pixels come from memory that is there already: fresh memory costs a page fault for each 4 KiB.
// muzzy_decay_ms: at once then. Otherwise the kernel would only be told that it may take the pages, and would count
//   them as resident until it does.
// oversize_threshold: 0, so that the same holds for blocks from 8 MiB on. These would go back as they are freed.
// narenas: as many heaps, among which threads are spread, on any machine. It would be four for each processor, each with
//   free memory of its own; small blocks come from a thread's cache.
const char* malloc_conf =
    "background_thread:true,max_background_threads:1,dirty_decay_ms:1000,muzzy_decay_ms:0,"
    "oversize_threshold:0,narenas:4";
#endif

namespace deepencoder {

// retain: addresses go back with the memory, since a worker's limit is on those.
// oversize_threshold: what is as large as this goes back as it is freed, or the steps of a picture would add up.
const char kDecodeHeap[] =
    "MALLOC_CONF=background_thread:false,narenas:1,retain:false,oversize_threshold:8388608,"
    "dirty_decay_ms:10000,muzzy_decay_ms:0";

#ifdef DEEPENCODER_JEMALLOC
void TrimHeap(size_t kept) {
  uint64_t epoch = 1;  // any: the figures are as of now
  mallctl("epoch", nullptr, nullptr, &epoch, sizeof(epoch));
  size_t pages = 0, page = 0, size = sizeof(size_t);
  if (mallctl("arenas.page", &page, &size, nullptr, 0) != 0) return;
  if (mallctl("stats.arenas." DEEPENCODER_ALL_ARENAS ".pdirty", &pages, &size, nullptr, 0) != 0) {
    return;
  }
  if (pages * page <= kept) return;
  mallctl("arena." DEEPENCODER_ALL_ARENAS ".purge", nullptr, nullptr, nullptr, 0);
}
#else
void TrimHeap(size_t /*kept*/) {}  // sanitizers see to their own
#endif

}  // namespace deepencoder
