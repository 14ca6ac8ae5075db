// The machine's clock, set while the process runs.
#pragma once

#include <atomic>
#include <ctime>

namespace deepencoder {

// Of the wall clock, for whoever asks for it in a program that refers to this.
extern std::atomic<time_t> seconds_ahead;

}  // namespace deepencoder
