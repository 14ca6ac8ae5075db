#include "tests/fuzz/allocation_peak.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <mutex>

// Clang's; GCC's AddressSanitizer comes without this header.
#ifdef __has_feature
#if __has_feature(address_sanitizer)
#define DEEPENCODER_ALLOCATION_HOOKS
#include <sanitizer/allocator_interface.h>
#endif
#endif

namespace deepencoder::fuzz {
namespace {

std::atomic<int64_t> held{0};  // bytes; below 0 where what was there before is freed
std::atomic<int64_t> peak{0};

#ifdef DEEPENCODER_ALLOCATION_HOOKS
void OnMalloc(const volatile void* /*memory*/, size_t size) {
  const int64_t now = held.fetch_add(static_cast<int64_t>(size)) + static_cast<int64_t>(size);
  int64_t most = peak.load();
  while (now > most && !peak.compare_exchange_weak(most, now)) {
  }
}

void OnFree(const volatile void* memory) {
  if (memory == nullptr) return;
  held.fetch_sub(
      static_cast<int64_t>(__sanitizer_get_allocated_size(const_cast<const void*>(memory))));
}

void InstallHooks() { __sanitizer_install_malloc_and_free_hooks(OnMalloc, OnFree); }
#else
void InstallHooks() {}
#endif

}  // namespace

AllocationPeak::AllocationPeak() {
  static std::once_flag once;
  std::call_once(once, InstallHooks);
  held = 0;
  peak = 0;
}

size_t AllocationPeak::bytes() const { return static_cast<size_t>(std::max<int64_t>(peak, 0)); }

}  // namespace deepencoder::fuzz
