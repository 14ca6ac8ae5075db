// The allocator: jemalloc, in the server and in its decode workers, which run the same program. Its settings are compiled in;
// the environment's MALLOC_CONF overrides the server's. A build with sanitizers has the sanitizer's.
//
// glibc's kept what was free between the few blocks that stay: an hour of mixed pages grew a server from 355 to 460 MiB, of
// which 5 MiB were in use whenever it was idle. It gives such memory back only all at once, and cannot say how much there is.
#pragma once

#include <cstddef>

namespace deepencoder {

// A line of a decode worker's environment: the settings for a process that may start no thread and whose address space is
// bounded.
extern const char kDecodeHeap[];

// Gives free memory back if there are more than `kept` bytes of it. For a decode worker; the server's goes back by itself.
void TrimHeap(size_t kept);

}  // namespace deepencoder
