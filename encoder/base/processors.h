// How many threads can work at once.
#pragma once

#include <string>

namespace deepencoder {

// Processors that this process may use, at least 1: those of its affinity, or fewer where the CPU quota of its
// control groups (v1 or v2) is less, rounded up. Looked up once.
int AvailableProcessors();

// The same, looked up now. `affinity`: processors of the affinity mask; `root` stands before /proc and /sys.
int AvailableProcessors(int affinity, const std::string& root);

}  // namespace deepencoder
