#include "client/progress.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <string>

#include "absl/time/clock.h"

namespace deepencoder::client {

Progress::Progress(size_t total, bool enabled)
    : total_(total),
      enabled_(enabled && total > 1 && isatty(STDERR_FILENO) != 0),
      start_(absl::Now()) {
  Draw();
}

Progress::~Progress() { Clear(); }

void Progress::Step(bool ok) {
  ++done_;
  if (!ok) ++failed_;
  Draw();
}

void Progress::Clear() {
  if (enabled_) std::fputs("\r\x1b[K", stderr);
}

void Progress::Draw() {
  if (!enabled_) return;
  constexpr size_t kWidth = 30;
  const size_t filled = kWidth * done_ / total_;
  const double seconds = absl::ToDoubleSeconds(absl::Now() - start_);
  const double rate = static_cast<double>(done_) / std::max(seconds, 1e-3);
  std::string bar = std::string(filled, '#') + std::string(kWidth - filled, '.');
  std::fprintf(stderr, "\r\x1b[K[%s] %zu/%zu images, %.1f/s", bar.c_str(), done_, total_, rate);
  if (failed_ > 0) std::fprintf(stderr, ", %zu failed", failed_);
  std::fflush(stderr);
}

}  // namespace deepencoder::client
