// A progress bar on the last line of a terminal; silent where standard error is none.
#pragma once

#include <cstddef>

#include "absl/time/time.h"

namespace deepencoder::client {

// Not thread-safe.
class Progress {
 public:
  Progress(size_t total, bool enabled);
  ~Progress();  // clears the line
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void Step(bool ok);
  // Takes the bar off the line so that something else can be printed; Step draws it again.
  void Clear();

 private:
  void Draw();

  const size_t total_;
  const bool enabled_;
  const absl::Time start_;
  size_t done_ = 0, failed_ = 0;
};

}  // namespace deepencoder::client
