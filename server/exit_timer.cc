#include "server/exit_timer.h"

#include <unistd.h>

#include <cstdlib>
#include <thread>

namespace deepencoder {

void ExitUnlessEndedWithin(absl::Duration time, const Logger* logger) {
  std::thread([time, logger] {
    std::this_thread::sleep_for(absl::ToChronoNanoseconds(time));
    logger->Error("a call into a device, or a client's, does not end: exiting without it",
                  {{"waited_seconds", absl::ToDoubleSeconds(time)}});
    _exit(EXIT_FAILURE);
  }).detach();
}

}  // namespace deepencoder
