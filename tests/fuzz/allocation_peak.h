// How much memory code takes at once, as AddressSanitizer's allocator sees it.
#pragma once

#include <cstddef>

namespace deepencoder::fuzz {

// Counts from its construction. One at a time, of what every thread allocates. Without clang's
// AddressSanitizer it sees nothing and says 0.
class AllocationPeak {
 public:
  AllocationPeak();
  size_t bytes() const;
};

}  // namespace deepencoder::fuzz
