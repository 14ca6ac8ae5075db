#include "client/tensor_file.h"

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "encoder/weights/atomic_file.h"

namespace deepencoder::client {
namespace {

constexpr size_t kAlignment = 64;  // of the data in an .npy file; 8 is enough for safetensors

// `value` in `bytes` bytes, lowest first.
std::string LittleEndian(uint64_t value, int bytes) {
  std::string text;
  for (int i = 0; i < bytes; ++i) text += static_cast<char>((value >> (8 * i)) & 0xFF);
  return text;
}

// The file is there complete or not at all.
absl::Status WriteParts(const std::string& path, const std::vector<std::string_view>& parts) {
  absl::StatusOr<std::unique_ptr<AtomicFile>> file = AtomicFile::Create(path);
  if (!file.ok()) return file.status();
  uint64_t offset = 0;
  for (const std::string_view part : parts) {
    absl::Status status = (*file)->WriteAt(offset, part.data(), part.size());
    if (!status.ok()) return status;
    offset += part.size();
  }
  return (*file)->Commit();
}

std::string_view SafetensorsType(DType dtype) {
  switch (dtype) {
    case DType::kBf16:
      return "BF16";
    case DType::kFp16:
      return "F16";
    case DType::kFp32:
      return "F32";
  }
  return "";
}

}  // namespace

std::string JsonString(const std::string& text) {
  std::string json = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      json += '\\';
      json += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      char escape[8];
      std::snprintf(escape, sizeof(escape), "\\u%04x", static_cast<unsigned>(c));
      json += escape;
    } else {
      json += c;
    }
  }
  return json += '"';
}

absl::Status WriteNpy(const std::string& path, const Embeddings& embeddings) {
  if (embeddings.dtype == DType::kBf16) {
    return absl::InvalidArgumentError(path + ": .npy has no bf16; use fp32, fp16 or safetensors");
  }
  // Format version 1.0: magic, version, length of the header, header padded with blanks.
  const std::string magic("\x93NUMPY\x01\x00", 8);
  std::string header = absl::StrCat("{'descr': '", embeddings.dtype == DType::kFp32 ? "<f4" : "<f2",
                                    "', 'fortran_order': False, 'shape': (", embeddings.rows, ", ",
                                    embeddings.width, "), }");
  const size_t unpadded = magic.size() + 2 + header.size() + 1;
  header.append((kAlignment - unpadded % kAlignment) % kAlignment, ' ');
  header += '\n';
  const std::string start = magic + LittleEndian(header.size(), 2) + header;
  return WriteParts(path, {start, embeddings.data});
}

absl::Status WriteSafetensors(const std::string& path, const std::vector<NamedTensor>& tensors) {
  std::string header = "{";
  size_t offset = 0;
  std::vector<std::string_view> parts = {""};
  for (const NamedTensor& tensor : tensors) {
    const Embeddings& embeddings = *tensor.embeddings;
    const size_t end = offset + embeddings.data.size();
    absl::StrAppend(&header, header.size() > 1 ? "," : "", JsonString(tensor.name),
                    ":{\"dtype\":\"", std::string(SafetensorsType(embeddings.dtype)),
                    "\",\"shape\":[", embeddings.rows, ",", embeddings.width,
                    "],\"data_offsets\":[", offset, ",", end, "]}");
    offset = end;
    parts.emplace_back(embeddings.data);
  }
  header += "}";
  header.append((8 - header.size() % 8) % 8, ' ');
  const std::string start = LittleEndian(header.size(), 8) + header;
  parts.front() = start;
  return WriteParts(path, parts);
}

}  // namespace deepencoder::client
