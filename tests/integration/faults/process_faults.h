// Faults of what the process has from the system: memory, threads, the clock.
#pragma once

namespace deepencoder::faults {

// The rules of new, thread and clock count from now on: what comes before is not the engine's.
void BeginProcessFaults();

}  // namespace deepencoder::faults
