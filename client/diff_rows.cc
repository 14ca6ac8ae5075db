#include "client/diff_rows.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <optional>

#include "absl/strings/str_cat.h"
#include "client/client.h"
#include "encoder/base/dtype.h"
#include "encoder/weights/safetensors.h"

namespace deepencoder::client {
namespace {

constexpr char kNpy[] = ".npy", kSafetensors[] = ".safetensors";

// Rows and width of a shape. Errors: INVALID_ARGUMENT.
absl::Status SetShape(const std::vector<int64_t>& shape, RowsTensor& tensor) {
  const size_t dimensions = shape.size();
  const bool leading_ones = dimensions >= 2 && std::all_of(shape.begin(), shape.end() - 2,
                                                           [](int64_t n) { return n == 1; });
  if (!leading_ones || shape[dimensions - 1] < 1 || shape[dimensions - 2] < 1) {
    return absl::InvalidArgumentError("shape " + ShapeText(shape) + " is not rows x width");
  }
  tensor.rows = shape[dimensions - 2];
  tensor.width = shape[dimensions - 1];
  return absl::OkStatus();
}

// `bytes` must be those of rows x width elements; checked without a product that could overflow.
bool FitsBytes(const RowsTensor& tensor, deepencoder::DType type, size_t bytes) {
  const size_t elements = bytes / deepencoder::SizeOf(type);
  const auto width = static_cast<size_t>(tensor.width), rows = static_cast<size_t>(tensor.rows);
  return bytes % deepencoder::SizeOf(type) == 0 && elements % width == 0 &&
         elements / width == rows;
}

void SetValues(deepencoder::DType type, const void* data, size_t bytes, RowsTensor& tensor) {
  // Copied first: a file's data need not be aligned.
  std::vector<std::byte> aligned(bytes);
  std::memcpy(aligned.data(), data, bytes);
  tensor.values.resize(bytes / deepencoder::SizeOf(type));
  ConvertToFloat(type, aligned.data(), tensor.values.data(), tensor.values.size());
}

std::optional<deepencoder::DType> TypeOf(std::string_view name) {
  if (name == "F32" || name == "<f4") return deepencoder::DType::kFp32;
  if (name == "F16" || name == "<f2") return deepencoder::DType::kFp16;
  if (name == "BF16") return deepencoder::DType::kBf16;
  return std::nullopt;
}

absl::StatusOr<std::vector<RowsTensor>> ReadSafetensors(const std::string& path) {
  const auto file = SafetensorsFile::Open(path);
  if (!file.ok()) return file.status();
  std::vector<RowsTensor> tensors;
  for (const auto& [name, stored] : (*file)->tensors()) {
    RowsTensor tensor;
    tensor.name = name;
    tensor.type = stored.dtype;
    const std::optional<deepencoder::DType> type = TypeOf(stored.dtype);
    const absl::Status status =
        type ? SetShape(stored.shape, tensor)
             : absl::InvalidArgumentError("type " + stored.dtype + " is not BF16, F16 or F32");
    if (!status.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": tensor ", name, ": ", std::string(status.message())));
    }
    SetValues(*type, stored.data, stored.bytes, tensor);
    tensors.push_back(std::move(tensor));
  }
  if (tensors.empty()) return absl::InvalidArgumentError(path + ": holds no tensor");
  return tensors;
}

// The text after 'key': in a .npy header, a dictionary as Python writes it; empty if it is not
// there.
std::string_view NpyValue(std::string_view header, std::string_view key) {
  const size_t at = header.find(absl::StrCat("'", std::string(key), "':"));
  if (at == std::string_view::npos) return "";
  std::string_view value = header.substr(at + key.size() + 3);
  value.remove_prefix(std::min(value.find_first_not_of(' '), value.size()));
  return value;
}

// "(3, 5), ..." -> {3, 5}; empty if it is no tuple of whole numbers.
std::vector<int64_t> NpyShape(std::string_view text) {
  std::vector<int64_t> shape;
  if (!text.starts_with('(')) return {};
  while (text.starts_with('(') || text.starts_with(',')) {
    text.remove_prefix(1);
    text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
    if (text.starts_with(')')) return shape;
    int64_t number = 0;
    const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc()) return {};
    text.remove_prefix(static_cast<size_t>(stop - text.data()));
    shape.push_back(number);
  }
  return text.starts_with(')') ? shape : std::vector<int64_t>();
}

bool AllFinite(const float* values, int64_t count) {
  return std::all_of(values, values + count, [](float value) { return std::isfinite(value); });
}

double Ratio(double part, double whole) {
  if (part == 0) return 0;
  return whole == 0 ? std::numeric_limits<double>::infinity() : part / whole;
}

}  // namespace

absl::StatusOr<RowsTensor> ParseNpy(std::string_view file) {
  constexpr std::string_view kMagic("\x93NUMPY", 6);
  constexpr size_t kFixed = 8;  // magic and version
  if (!file.starts_with(kMagic) || file.size() < kFixed + 4) {
    return absl::InvalidArgumentError("is not a .npy file");
  }
  // Version 1 has 2 bytes of header length, later ones 4.
  const int length_bytes = file[6] == 1 ? 2 : 4;
  size_t length = 0;
  for (int i = 0; i < length_bytes; ++i) {
    length |= static_cast<size_t>(static_cast<uint8_t>(file[kFixed + static_cast<size_t>(i)]))
              << (8 * i);
  }
  const size_t start = kFixed + static_cast<size_t>(length_bytes);
  if (length > file.size() - start) return absl::InvalidArgumentError("the header ends early");
  const std::string_view header = file.substr(start, length);
  const std::string_view data = file.substr(start + length);

  RowsTensor tensor;
  std::string_view descr = NpyValue(header, "descr");
  if (descr.starts_with('\'')) descr.remove_prefix(1);
  tensor.type = descr.substr(0, descr.find('\''));
  const std::optional<deepencoder::DType> type = TypeOf(tensor.type);
  if (!type) {
    return absl::InvalidArgumentError("type '" + tensor.type + "' is not <f4 or <f2");
  }
  if (!NpyValue(header, "fortran_order").starts_with("False")) {
    return absl::InvalidArgumentError("columns are stored first (fortran_order)");
  }
  const absl::Status status = SetShape(NpyShape(NpyValue(header, "shape")), tensor);
  if (!status.ok()) return status;
  if (!FitsBytes(tensor, *type, data.size())) {
    return absl::InvalidArgumentError(
        absl::StrCat("its ", data.size(), " bytes of data are not those of ", tensor.rows, " x ",
                     tensor.width, " elements of ", tensor.type));
  }
  SetValues(*type, data.data(), data.size(), tensor);
  return tensor;
}

absl::StatusOr<std::vector<RowsTensor>> ReadEmbeddings(const std::string& path) {
  if (path.ends_with(kSafetensors)) return ReadSafetensors(path);
  if (!path.ends_with(kNpy)) {
    return absl::InvalidArgumentError(path + ": must end with .npy or .safetensors");
  }
  const absl::StatusOr<Image> file = ReadImageFile(path);  // any file: its bytes
  if (!file.ok()) return file.status();
  absl::StatusOr<RowsTensor> tensor = ParseNpy(file->encoded);
  if (!tensor.ok()) {
    return absl::InvalidArgumentError(path + ": " + std::string(tensor.status().message()));
  }
  return std::vector<RowsTensor>{*std::move(tensor)};
}

Difference CompareRows(const RowsTensor& a, const RowsTensor& b) {
  Difference result;
  double norm = 0, error = 0;  // squared, of all
  for (int64_t row = 0; row < a.rows; ++row) {
    const float* x = a.values.data() + row * a.width;
    const float* y = b.values.data() + row * a.width;
    double xx = 0, yy = 0, xy = 0, dd = 0;
    for (int64_t i = 0; i < a.width; ++i) {
      const double p = x[i], q = y[i], d = q - p;
      xx += p * p;
      yy += q * q;
      xy += p * q;
      dd += d * d;
      if (std::abs(d) > result.largest) {
        result.largest = std::abs(d);
        result.largest_row = row;
        result.largest_column = i;
      }
    }
    norm += xx;
    error += dd;
    const bool finite = AllFinite(x, a.width) && AllFinite(y, a.width);
    if (!finite) ++result.not_finite;
    const double lengths = std::sqrt(xx) * std::sqrt(yy);
    // Equal rows have cosine 1 although the roots are rounded.
    double cosine = lengths > 0 && dd > 0 ? std::clamp(xy / lengths, -1.0, 1.0) : 0.0;
    if (dd == 0) cosine = 1;
    result.row_cosine.push_back(finite ? cosine : std::nan(""));
    result.row_error.push_back(finite ? std::sqrt(Ratio(dd, xx)) : std::nan(""));
  }
  if (result.not_finite > 0) {
    result.relative_error = result.cosine_min = result.cosine_mean = result.largest = std::nan("");
    return result;
  }
  const std::vector<double>& cosines = result.row_cosine;
  result.relative_error = std::sqrt(Ratio(error, norm));
  result.cosine_min = *std::min_element(cosines.begin(), cosines.end());
  result.cosine_mean =
      std::accumulate(cosines.begin(), cosines.end(), 0.0) / static_cast<double>(cosines.size());
  return result;
}

std::vector<int64_t> WorstRows(const Difference& difference, size_t count) {
  const std::vector<double>& cosines = difference.row_cosine;
  const auto worth = [&cosines](int64_t row) {
    const double cosine = cosines[static_cast<size_t>(row)];
    return std::isnan(cosine) ? -2.0 : cosine;
  };
  std::vector<int64_t> rows(cosines.size());
  std::iota(rows.begin(), rows.end(), 0);
  std::stable_sort(rows.begin(), rows.end(),
                   [&worth](int64_t x, int64_t y) { return worth(x) < worth(y); });
  rows.resize(std::min(count, rows.size()));
  return rows;
}

}  // namespace deepencoder::client
