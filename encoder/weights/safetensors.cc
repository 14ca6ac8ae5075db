#include "encoder/weights/safetensors.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "encoder/weights/json.h"

namespace deepencoder {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors data is little-endian");

constexpr size_t kLengthBytes = 8;  // of the number in front of the header
constexpr size_t kMaxAxes = 16;
constexpr int64_t kMaxInteger = int64_t{1} << 53;  // what JSON's doubles hold exactly

struct DTypeBits {
  std::string_view name;
  int bits;  // of one element
};
// Every type of the format: language tensors may have any of them.
constexpr DTypeBits kDTypes[] = {
    {"BF16", 16},   {"F16", 16},    {"F32", 32},    {"F64", 64},    {"BOOL", 8},
    {"U8", 8},      {"I8", 8},      {"U16", 16},    {"I16", 16},    {"U32", 32},
    {"I32", 32},    {"U64", 64},    {"I64", 64},    {"F8_E5M2", 8}, {"F8_E4M3", 8},
    {"F8_E8M0", 8}, {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"F4", 4},      {"C64", 64},
};

// Bytes of a tensor; false if the number overflows or is not whole.
bool TensorBytes(const std::vector<int64_t>& shape, int bits, uint64_t* bytes) {
  uint64_t total = bits;
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) {
    *bytes = 0;
    return true;
  }
  for (const int64_t extent : shape) {
    if (total > std::numeric_limits<uint64_t>::max() / static_cast<uint64_t>(extent)) return false;
    total *= static_cast<uint64_t>(extent);
  }
  *bytes = total / 8;
  return total % 8 == 0;
}

absl::Status Malformed(std::string_view detail) {
  return absl::InvalidArgumentError(std::string(detail));
}

absl::Status Malformed(std::string_view field, const absl::Status& status) {
  return Malformed(absl::StrCat(std::string(field), ": ", status.message()));
}

// The entry of one tensor, checked by itself against data of `data_bytes` at `data`.
absl::StatusOr<SafetensorsTensor> ReadEntry(const JsonValue& value, const std::byte* data,
                                            size_t data_bytes) {
  if (!value.has_struct_value()) {
    return Malformed(absl::StrCat("expected an object, found ", std::string(JsonKind(value))));
  }
  const JsonObject& entry = value.struct_value();
  const JsonValue* dtype = FindJson(entry, "dtype");
  const JsonValue* shape = FindJson(entry, "shape");
  const JsonValue* offsets = FindJson(entry, "data_offsets");
  if (dtype == nullptr || shape == nullptr || offsets == nullptr || entry.fields_size() != 3) {
    return Malformed("expected the fields dtype, shape and data_offsets alone");
  }
  const absl::StatusOr<std::string_view> name = JsonString(*dtype);
  if (!name.ok()) return Malformed("dtype", name.status());
  const auto* type = std::find_if(std::begin(kDTypes), std::end(kDTypes),
                                  [&](const DTypeBits& known) { return known.name == *name; });
  if (type == std::end(kDTypes)) {
    return Malformed(absl::StrCat("unknown dtype \"", std::string(*name), "\""));
  }

  absl::StatusOr<std::vector<int64_t>> extents = JsonIntegers(*shape, 0, kMaxInteger, kMaxAxes);
  if (!extents.ok()) return Malformed("shape", extents.status());
  uint64_t bytes = 0;
  if (!TensorBytes(*extents, type->bits, &bytes)) {
    return Malformed(absl::StrCat("shape ", ShapeText(*extents), " of ", std::string(*name),
                                  " is not a whole number of bytes below 2^61"));
  }

  const absl::StatusOr<std::vector<int64_t>> range = JsonIntegers(*offsets, 0, kMaxInteger, 2);
  if (!range.ok()) return Malformed("data_offsets", range.status());
  if (range->size() != 2 || (*range)[0] > (*range)[1]) {
    return Malformed("data_offsets: expected [begin, end] with begin <= end");
  }
  const auto begin = static_cast<uint64_t>((*range)[0]);
  const auto end = static_cast<uint64_t>((*range)[1]);
  if (end > data_bytes) {
    return Malformed(absl::StrCat("data_offsets [", begin, ", ", end, "] go past the file's ",
                                  data_bytes, " bytes of data: the file is truncated"));
  }
  if (end - begin != bytes) {
    return Malformed(absl::StrCat("data_offsets [", begin, ", ", end, "] span ", end - begin,
                                  " bytes, but ", std::string(*name), " ", ShapeText(*extents),
                                  " needs ", bytes));
  }
  return SafetensorsTensor{std::string(*name), *std::move(extents), data + begin, end - begin};
}

}  // namespace

std::string ShapeText(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) absl::StrAppend(&text, i == 0 ? "" : ", ", shape[i]);
  return text + "]";
}

absl::StatusOr<std::unique_ptr<SafetensorsFile>> SafetensorsFile::Open(const std::string& path) {
  absl::StatusOr<std::unique_ptr<FileMapping>> mapping = FileMapping::Open(path, kLengthBytes);
  if (!mapping.ok()) return mapping.status();
  std::unique_ptr<SafetensorsFile> file(new SafetensorsFile(path, *std::move(mapping)));
  if (absl::Status status = file->ReadHeader(); !status.ok()) {
    return Malformed(absl::StrCat(path, ": ", status.message()));
  }
  return file;
}

absl::Status SafetensorsFile::ReadHeader() {
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, mapping_, kLengthBytes);
  const size_t after_length = mapped_bytes_ - kLengthBytes;
  if (header_bytes > after_length) {
    // Without the number: of a file that is no safetensors file it is the first eight bytes.
    return Malformed(
        absl::StrCat("the header's length goes past the ", mapped_bytes_, " bytes of the file"));
  }
  if (header_bytes > kMaxHeaderBytes) {
    return Malformed(
        absl::StrCat("the header's length is over the limit of ", kMaxHeaderBytes, " bytes"));
  }
  const std::string_view text(reinterpret_cast<const char*>(mapping_ + kLengthBytes), header_bytes);
  if (!text.starts_with('{')) return Malformed("the header does not start with '{'");
  const absl::StatusOr<JsonObject> header = ParseJson(text, kMaxHeaderBytes);
  if (!header.ok()) return Malformed("header", header.status());

  const std::byte* data = mapping_ + kLengthBytes + header_bytes;
  const size_t data_bytes = after_length - header_bytes;
  // By name: protobuf's maps have no order, and the first error should be the same every time.
  const std::map<std::string_view, const JsonValue*> entries = [&] {
    std::map<std::string_view, const JsonValue*> sorted;
    for (const auto& [name, value] : header->fields()) sorted.emplace(name, &value);
    return sorted;
  }();
  for (const auto& [name, value] : entries) {
    if (name == "__metadata__") continue;  // free text
    absl::StatusOr<SafetensorsTensor> tensor = ReadEntry(*value, data, data_bytes);
    if (!tensor.ok()) {
      return Malformed(absl::StrCat("tensor ", std::string(name)), tensor.status());
    }
    tensors_.emplace(name, *std::move(tensor));
  }

  // Laid end to end: no two share bytes, none are left over.
  std::vector<std::pair<const SafetensorsTensor*, const std::string*>> order;
  order.reserve(tensors_.size());
  for (const auto& [name, tensor] : tensors_) order.emplace_back(&tensor, &name);
  std::sort(order.begin(), order.end(), [](const auto& a, const auto& b) {
    return std::pair(a.first->data, a.first->bytes) < std::pair(b.first->data, b.first->bytes);
  });
  const std::byte* expected = data;
  for (const auto& [tensor, name] : order) {
    if (tensor->data != expected) {
      return Malformed(absl::StrCat("tensor ", *name, ": begins at byte ", tensor->data - data,
                                    " of the data, but the tensors before it end at ",
                                    expected - data,
                                    tensor->data < expected ? ": they overlap" : ": a hole"));
    }
    expected += tensor->bytes;
  }
  if (expected != data + data_bytes) {
    return Malformed(absl::StrCat("the tensors end at byte ", expected - data,
                                  " of the data, the file at ", data_bytes));
  }
  return absl::OkStatus();
}

void SafetensorsFile::Release(const SafetensorsTensor& tensor) const {
  // Whole pages, rounded outwards: neighbours that share a page only read it again.
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const auto offset = static_cast<size_t>(tensor.data - mapping_);
  const size_t begin = offset / page * page;
  const size_t end = std::min((offset + tensor.bytes + page - 1) / page * page, mapped_bytes_);
  if (begin >= end) return;
  // Advice only: if it fails, memory stays resident, nothing else.
  (void)madvise(const_cast<std::byte*>(mapping_) + begin, end - begin, MADV_DONTNEED);
}

}  // namespace deepencoder
