// Pages to measure with where no image is at hand.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace deepencoder::client {

// A page of printed words, width x height pixels (each at least 1), as a PNG file: the same bytes
// for the same size. The words mean nothing; decoding and tiling cost what a scan's cost. Errors:
// INTERNAL.
absl::StatusOr<std::string> SyntheticPage(int width, int height);

}  // namespace deepencoder::client
