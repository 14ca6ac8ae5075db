// Embeddings read from files, and how two of them differ.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace deepencoder::client {

struct RowsTensor {
  std::string name;  // in the file; empty for .npy, which has none
  std::string type;  // as the file names it: "BF16", "<f4"
  int64_t rows = 0, width = 0;
  std::vector<float> values;  // [rows][width]
};

// The tensors of a .npy or .safetensors file, by the file's ending; in order of their names. Of
// more than two dimensions those before the last two must be 1. Errors, starting with the path:
// NOT_FOUND, INVALID_ARGUMENT (another ending, a broken file, a type that is no float of 2 or 4
// bytes, a shape that is not rows x width).
absl::StatusOr<std::vector<RowsTensor>> ReadEmbeddings(const std::string& path);

// The content of a .npy file. Errors: INVALID_ARGUMENT.
absl::StatusOr<RowsTensor> ParseNpy(std::string_view file);

// Lengths are L2 norms. What cannot be computed, since a value is not finite, is NaN.
struct Difference {
  double relative_error = 0;  // |B - A| / |A|; infinite if A is 0 and B is not
  double cosine_min = 1, cosine_mean = 1;
  double largest = 0;  // of |b - a|
  int64_t largest_row = 0, largest_column = 0;
  int64_t not_finite = 0;  // rows, of A or of B, that hold NaN or infinity
  // Of each row. Cosine: 1 if both rows are 0, 0 if one is.
  std::vector<double> row_cosine, row_error;
};
// Both have the same shape, and at least one row.
Difference CompareRows(const RowsTensor& a, const RowsTensor& b);

// The `count` rows of least cosine, those that are not finite before all; the worst first.
std::vector<int64_t> WorstRows(const Difference& difference, size_t count);

}  // namespace deepencoder::client
