// The C library's allocator, told how a server allocates: blocks of all sizes, on many threads, for as long as an image
// is under way. glibc would keep what is free between the few blocks that stay: an hour of mixed pages grew a server from
// 355 to 460 MiB, of which 5 MiB were in use whenever it was idle.
#pragma once

namespace deepencoder {

// Large blocks (files, pixels, views) are mapped on their own from now on, and go back as they are freed. glibc alone raises
// the size from which it does so to that of the largest block freed so far, up to 32 MiB (mallopt(3)).
// Before threads are started.
void SetUpHeap();

// Gives free memory back if there is much of it; milliseconds then. From time to time.
void TrimHeap();

}  // namespace deepencoder
