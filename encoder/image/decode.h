// Encoded bytes -> upright RGB8, as Pillow does it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "absl/status/statusor.h"
#include "encoder/image/image.h"

namespace deepencoder {

enum class ImageFormat : uint8_t { kJpeg, kPng, kWebp, kTiff, kBmp, kGif };
std::string_view Name(ImageFormat format);

enum class AlphaPolicy : uint8_t {
  kDrop,   // colour as stored, transparency ignored (the reference)
  kWhite,  // composited on white (vLLM)
};
enum class Gray16Policy : uint8_t {
  kHighByte,  // v >> 8
  kSaturate,  // min(v, 255), as Pillow's convert("RGB") of mode I;16: most scans turn white
};

// Longest side of any file, pixels: keeps working rows small whatever the pixel limit.
inline constexpr int64_t kMaxStoredSide = 1'000'000;

struct DecodeOptions {
  size_t max_bytes = size_t{32} << 20;  // of the encoded file
  int64_t max_pixels =
      178'956'970;  // width * height, read from the header before pixels are allocated
  AlphaPolicy alpha = AlphaPolicy::kDrop;
  Gray16Policy gray16 = Gray16Policy::kHighByte;
};

struct ImageHeader {
  ImageFormat format;
  int width, height;       // as stored, before orientation
  size_t table_bytes = 0;  // what decoding takes for tables whose size is the file's choice
};

// What the file says of itself; pixels are neither decoded nor allocated.
// Errors: INVALID_ARGUMENT (empty, unknown format (the text names the known ones), broken header, a side
// over kMaxStoredSide, too many pixels), RESOURCE_EXHAUSTED (too many bytes).
absl::StatusOr<ImageHeader> ReadHeader(std::span<const std::byte> file,
                                       const DecodeOptions& options);

// The most that table_bytes says of a WebP file: 2,600 groups of prefix codes, which is as many as libwebp's
// encoder writes. A file may have 65,536 of them, 1.35 GB.
inline constexpr size_t kMaxWebpTableBytes = size_t{54} << 20;

// Bytes that DecodeImage of this header needs at its peak, an upper bound; for admission. Only a WebP
// file with over kMaxWebpTableBytes of tables needs more: a limit on the decoding process' memory has to
// stop it, and then it is RESOURCE_EXHAUSTED, or INVALID_ARGUMENT where libwebp takes a lack of memory
// for a broken file.
size_t DecodeBytes(const ImageHeader& header);

// Errors as ReadHeader, INVALID_ARGUMENT for data that is broken, of an unsupported kind or ends early,
// and RESOURCE_EXHAUSTED if memory runs out. Thread-safe.
absl::StatusOr<RgbImage> DecodeImage(std::span<const std::byte> file, const DecodeOptions& options);

}  // namespace deepencoder
