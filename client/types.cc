// What the public types do without a server: names, files, numbers.
#include <bit>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>

#include "client/client.h"

namespace deepencoder::client {
namespace {

constexpr std::pair<Mode, std::string_view> kModes[] = {{Mode::kTiny, "tiny"},
                                                        {Mode::kSmall, "small"},
                                                        {Mode::kBase, "base"},
                                                        {Mode::kLarge, "large"},
                                                        {Mode::kGundam, "gundam"}};
constexpr std::pair<DType, std::string_view> kDTypes[] = {
    {DType::kBf16, "bf16"}, {DType::kFp16, "fp16"}, {DType::kFp32, "fp32"}};

template <typename Table, typename Value>
std::string_view NameIn(const Table& table, Value value) {
  for (const auto& [known, name] : table) {
    if (known == value) return name;
  }
  return "unknown";
}

// IEEE binary16, subnormals included.
float HalfToFloat(uint16_t bits) {
  const int exponent = (bits >> 10) & 0x1F;
  const int mantissa = bits & 0x3FF;
  float magnitude;
  if (exponent == 0) {
    magnitude = std::ldexp(static_cast<float>(mantissa), -24);
  } else if (exponent == 31) {
    magnitude = mantissa == 0 ? HUGE_VALF : std::nanf("");
  } else {
    magnitude = std::ldexp(static_cast<float>(mantissa | 0x400), exponent - 25);
  }
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

float Bf16ToFloat(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

}  // namespace

std::string_view Name(Mode mode) { return NameIn(kModes, mode); }
std::string_view Name(DType dtype) { return NameIn(kDTypes, dtype); }

std::optional<Mode> ParseMode(std::string_view name) {
  for (const auto& [mode, known] : kModes) {
    if (name == known) return mode;
  }
  return std::nullopt;
}

std::optional<DType> ParseDType(std::string_view name) {
  for (const auto& [dtype, known] : kDTypes) {
    if (name == known) return dtype;
  }
  return std::nullopt;
}

absl::StatusOr<Image> ReadImageFile(const std::string& path) {
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(path, error);
  if (!std::filesystem::exists(status)) return absl::NotFoundError(path + ": no such file");
  if (!std::filesystem::is_regular_file(status)) {
    return absl::InvalidArgumentError(path + ": not a file");
  }
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) return absl::PermissionDeniedError(path + ": cannot be read: " + std::strerror(errno));
  Image image;
  image.encoded.resize(static_cast<size_t>(file.tellg()));
  file.seekg(0);
  file.read(image.encoded.data(), static_cast<std::streamsize>(image.encoded.size()));
  if (!file) return absl::UnknownError(path + ": reading failed");
  return image;
}

void Embeddings::Own(std::string bytes) {
  auto held = std::make_shared<const std::string>(std::move(bytes));
  data = *held;
  owner = std::move(held);
}

std::vector<float> Embeddings::ToFloats() const {
  std::vector<float> floats(data.size() / SizeOf(dtype));
  if (dtype == DType::kFp32) {
    std::memcpy(floats.data(), data.data(), floats.size() * sizeof(float));
    return floats;
  }
  for (size_t i = 0; i < floats.size(); ++i) {
    uint16_t bits;
    std::memcpy(&bits, data.data() + i * sizeof(bits), sizeof(bits));
    floats[i] = dtype == DType::kBf16 ? Bf16ToFloat(bits) : HalfToFloat(bits);
  }
  return floats;
}

}  // namespace deepencoder::client
