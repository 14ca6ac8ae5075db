// The sizes that JPEG, WebP, TIFF and GIF files state, read here and by no library: a server looks at them
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

// How the fields of a TIFF file are written: TIFF 6.0, or BigTIFF.
struct TiffFields {
  std::endian order;
  bool big;
  std::optional<uint32_t> Read(Bytes file, size_t at, size_t size) const {
    return ReadInteger(file, at, size, order);
  }
  // 8 bytes in BigTIFF, else 4. What is past 2^32 lies in no file here.
  std::optional<uint64_t> Offset(Bytes file, size_t at) const {
    if (!big) return Read(file, at, 4);
    const bool high_first = order == std::endian::big;
    const auto high = Read(file, high_first ? at : at + 4, 4);
    const auto low = Read(file, high_first ? at + 4 : at, 4);
    if (!high || !low) return std::nullopt;
    return uint64_t{*high} << 32 | *low;
  }
};

// The number in a directory's entry: one BYTE, SHORT, LONG or LONG8.
std::optional<uint64_t> EntryValue(Bytes file, size_t entry, const TiffFields& fields) {
  constexpr uint32_t kByte = 1, kShort = 3, kLong = 4, kLong8 = 16;
  const auto type = fields.Read(file, entry + 2, 2);
  const size_t value = entry + (fields.big ? 12 : 8);
  if (!type || fields.Offset(file, entry + 4) != uint64_t{1}) return std::nullopt;
  switch (*type) {
    case kByte:
      return fields.Read(file, value, 1);
    case kShort:
      return fields.Read(file, value, 2);
    case kLong:
      return fields.Read(file, value, 4);
    case kLong8:
      return fields.big ? fields.Offset(file, value) : std::nullopt;
    default:
      return std::nullopt;
  }
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

absl::StatusOr<StoredSize> ReadTiffSize(Bytes file) {
  constexpr uint32_t kBigVersion = 43, kWidth = 256, kLength = 257;
  TiffFields fields = {StartsWith(file, "MM") ? std::endian::big : std::endian::little, false};
  fields.big = fields.Read(file, 2, 2) == kBigVersion;
  const size_t entry_bytes = fields.big ? 20 : 12, count_bytes = fields.big ? 8 : 2;
  const auto directory = fields.Offset(file, fields.big ? 8 : 4);
  if (!directory || *directory >= file.size()) return Broken("TIFF", "no directory");
  std::optional<uint64_t> count = fields.Read(file, *directory, 2);
  if (fields.big) count = fields.Offset(file, *directory);
  std::optional<uint64_t> width, height;
  for (uint64_t i = 0; count && i < *count && (!width || !height); ++i) {
    const size_t entry = *directory + count_bytes + i * entry_bytes;
    const auto tag = fields.Read(file, entry, 2);
    if (!tag) break;  // past the end
    if (*tag == kWidth && !width) width = EntryValue(file, entry, fields);
    if (*tag == kLength && !height) height = EntryValue(file, entry, fields);
  }
  if (!width || !height) return Broken("TIFF", "no width or height");
  // Either may be past any limit; as a signed number it must stay so.
  constexpr uint64_t kMost = INT64_MAX;
  return StoredSize{static_cast<int64_t>(std::min(*width, kMost)),
                    static_cast<int64_t>(std::min(*height, kMost))};
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
