#include "tests/server/engine/set_wall_clock.h"

#include <dlfcn.h>

namespace deepencoder {

std::atomic<time_t> seconds_ahead{0};

}  // namespace deepencoder

// In the program itself, so in front of the C library's.
extern "C" __attribute__((visibility("default"))) int clock_gettime(clockid_t clock,
                                                                    timespec* time) noexcept {
  static const auto real =
      reinterpret_cast<decltype(&clock_gettime)>(dlsym(RTLD_NEXT, "clock_gettime"));
  const int result = real(clock, time);
  if (result == 0 && clock == CLOCK_REALTIME) time->tv_sec += deepencoder::seconds_ahead;
  return result;
}
