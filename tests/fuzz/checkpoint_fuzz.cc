// A checkpoint's folder. The input is three texts with a zero byte between them: config.json, the index
// (none if empty) and the header of the safetensors file, whose length and data are made here: zeros, as
// many as the largest number in the header says.
#include <algorithm>
#include <charconv>

#include "encoder/weights/checkpoint.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/scratch_folder.h"

namespace deepencoder::fuzz {
namespace {

constexpr uint64_t kMaxDataBytes = uint64_t{256} << 20;  // none of them on the disk

// Up to the next zero byte, which is taken too.
std::string_view TakePart(std::string_view& rest) {
  const std::string_view part = rest.substr(0, rest.find('\0'));
  rest.remove_prefix(std::min(rest.size(), part.size() + 1));
  return part;
}

uint64_t LargestNumber(std::string_view text) {
  uint64_t largest = 0;
  for (size_t at = 0; (at = text.find_first_of("0123456789", at)) != std::string_view::npos;) {
    uint64_t number = 0;
    const auto read = std::from_chars(text.data() + at, text.data() + text.size(), number);
    at = static_cast<size_t>(read.ptr - text.data());
    if (read.ec == std::errc() && number <= kMaxDataBytes) largest = std::max(largest, number);
  }
  return largest;
}

}  // namespace

void TryInput(const uint8_t* data, size_t size) {
  static const ScratchFolder folder;
  std::string_view rest = AsText(data, size);
  const std::string_view config = TakePart(rest), index = TakePart(rest);
  folder.Write("config.json", config, config.size());
  std::filesystem::remove(folder.path() / "model.safetensors.index.json");
  if (!index.empty()) folder.Write("model.safetensors.index.json", index, index.size());
  std::string header(8, '\0');
  for (size_t i = 0; i < 8; ++i) header[i] = static_cast<char>(uint64_t{rest.size()} >> 8 * i);
  header += rest;
  folder.Write("model.safetensors", header, header.size() + LargestNumber(rest));

  const auto checkpoint = Checkpoint::Open(folder.path().string());
  if (!checkpoint.ok()) {
    if (!absl::IsNotFound(checkpoint.status())) RequireRefusal(checkpoint.status());
    return;
  }
  Require(!(*checkpoint)->GetFloats("model.image_newline").empty(), "the marker rows are there");
}

}  // namespace deepencoder::fuzz
