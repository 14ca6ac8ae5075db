// The end of the process must not depend on a backend: a call into a device that never returns can
// neither be ended nor waited for.
#pragma once

#include "absl/time/time.h"
#include "server/log.h"

namespace deepencoder {

// Exits with failure, and says so, unless the process ends within `time`. `logger` must live as long as the
// process.
void ExitUnlessEndedWithin(absl::Duration time, const Logger* logger);

}  // namespace deepencoder
