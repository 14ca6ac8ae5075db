// Takes from the calling process all that decoding does not need.
#pragma once

namespace deepencoder {

struct ConfinementResult {
  int error;         // errno; 0: done
  const char* step;  // which one failed, at most 31 characters
};

// Afterwards the process can compute, take and give back memory, read from and write to `socket`, write to
// where standard error leads, and end. No files, no network, no processes or threads, no memory that is code: such
// system calls fail with EPERM. No way back. To be called before the process has threads.
//
// Under a sanitizer, whose runtime needs more than that, only the limits on resources are set.
ConfinementResult Confine(int socket);

// Whether Confine takes system calls away: false under a sanitizer.
bool ConfinesSystemCalls();

}  // namespace deepencoder
