// The sizes that JPEG, WebP and GIF files state, read here and by no library: a server looks at them
// before it hands the file to a decoder, in the process that the decoders are kept out of. The decoders
// compare them with what their library has read.
#include <algorithm>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "encoder/image/formats.h"

namespace deepencoder {
namespace {

absl::Status Broken(const char* format, const std::string& why) {
  return absl::InvalidArgumentError(absl::StrCat("broken or truncated ", format, " file: ", why));
}

std::optional<uint32_t> Big(Bytes file, size_t at, size_t size) {
  return ReadInteger(file, at, size, std::endian::big);
}
std::optional<uint32_t> Little(Bytes file, size_t at, size_t size) {
  return ReadInteger(file, at, size, std::endian::little);
}

// The second byte of the next JPEG marker at or after `*at`, which is moved behind it. Between segments
// there may be fill bytes, and what does not belong there.
std::optional<uint32_t> NextMarker(Bytes file, size_t* at) {
  bool after_ff = false;
  while (const auto byte = Big(file, (*at)++, 1)) {
    if (after_ff && *byte != 0 && *byte != 0xFF) return byte;
    after_ff = *byte == 0xFF;
  }
  return std::nullopt;
}

bool IsFrameHeader(uint32_t marker) {
  constexpr uint32_t kHuffmanTables = 0xC4, kReserved = 0xC8, kArithmeticTables = 0xCC;
  return marker >= 0xC0 && marker <= 0xCF && marker != kHuffmanTables && marker != kReserved &&
         marker != kArithmeticTables;
}

bool StandsAlone(uint32_t marker) {
  constexpr uint32_t kTemporary = 0x01, kFirstRestart = 0xD0, kStart = 0xD8;
  return marker == kTemporary || (marker >= kFirstRestart && marker <= kStart);
}

// Where the block that starts at `at` ends: a length and as many bytes, again and again, up to a length
// of 0.
std::optional<size_t> EndOfGifBlocks(Bytes file, size_t at) {
  while (const auto length = Little(file, at, 1)) {
    at += 1 + *length;
    if (*length == 0) return at;
  }
  return std::nullopt;
}

}  // namespace

absl::StatusOr<StoredSize> ReadJpegSize(Bytes file) {
  constexpr uint32_t kStartOfScan = 0xDA, kEnd = 0xD9;
  size_t at = 2;
  while (const auto marker = NextMarker(file, &at)) {
    if (*marker == kStartOfScan || *marker == kEnd) {
      return Broken("JPEG", "no frame header before the picture");
    }
    if (StandsAlone(*marker)) continue;
    if (IsFrameHeader(*marker)) {  // length, precision, height, width
      const auto height = Big(file, at + 3, 2), width = Big(file, at + 5, 2);
      if (!width) break;
      return StoredSize{*width, *height};
    }
    const auto length = Big(file, at, 2);  // counts itself
    if (!length) break;
    if (*length < 2) return Broken("JPEG", "a segment of impossible length");
    at += *length;
  }
  return Broken("JPEG", "the file ends in its header");
}

absl::StatusOr<StoredSize> ReadWebpSize(Bytes file) {
  constexpr size_t kPayload = 20;  // file's header, first chunk's type and size
  constexpr uint32_t kMask = (1 << 14) - 1;
  const Bytes chunk = Slice(file, 12);
  if (StartsWith(chunk, "VP8X")) {  // flags, reserved, sides less 1
    const auto width = Little(file, kPayload + 4, 3), height = Little(file, kPayload + 7, 3);
    if (height) return StoredSize{int64_t{*width} + 1, int64_t{*height} + 1};
  } else if (StartsWith(chunk, "VP8L")) {  // signature, sides less 1
    const auto sides = Little(file, kPayload + 1, 4);
    if (sides) return StoredSize{(*sides & kMask) + 1, (*sides >> 14 & kMask) + 1};
  } else if (StartsWith(chunk, "VP8 ")) {  // frame tag, start code, sides with their scales
    const auto width = Little(file, kPayload + 6, 2), height = Little(file, kPayload + 8, 2);
    if (height) return StoredSize{*width & kMask, *height & kMask};
  } else if (!chunk.empty()) {
    return Broken("WebP", "it does not start with a picture");
  }
  return Broken("WebP", "the file ends early");
}

absl::StatusOr<StoredSize> ReadGifSize(Bytes file) {
  constexpr uint32_t kExtension = 0x21, kImage = 0x2C, kTrailer = 0x3B;
  const auto screen_width = Little(file, 6, 2), screen_height = Little(file, 8, 2);
  const auto flags = Little(file, 10, 1);
  if (!flags) return Broken("GIF", "the file ends in its header");
  size_t at = 13;
  if ((*flags & 0x80) != 0) at += size_t{3} << ((*flags & 7) + 1);  // the global colour table
  while (const auto type = Little(file, at, 1)) {
    if (*type == kTrailer) return Broken("GIF", "it has no frame");
    if (*type == kImage) {  // left, top, width, height
      const auto left = Little(file, at + 1, 2), top = Little(file, at + 3, 2);
      const auto width = Little(file, at + 5, 2), height = Little(file, at + 7, 2);
      if (!height) break;
      if (*width == 0 || *height == 0) return Broken("GIF", "its first frame is empty");
      // The canvas: the logical screen, or more if the frame reaches beyond it.
      return StoredSize{std::max<int64_t>(*screen_width, int64_t{*left} + *width),
                        std::max<int64_t>(*screen_height, int64_t{*top} + *height)};
    }
    if (*type != kExtension) return Broken("GIF", "a block of unknown type");
    const auto end = EndOfGifBlocks(file, at + 2);
    if (!end) break;
    at = *end;
  }
  return Broken("GIF", "the file ends in its header");
}

}  // namespace deepencoder
