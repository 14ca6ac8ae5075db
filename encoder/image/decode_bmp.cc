// BMP, read here: uncompressed 1, 4, 8, 16, 24 and 32 bits, bit fields, RLE4 and RLE8; bottom-up and
// top-down. A fourth byte is padding, as to Pillow, unless a header of 56 bytes or more has a mask for it: alpha.
#include <algorithm>
#include <array>
#include <bit>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "encoder/image/formats.h"
#include "encoder/image/orientation.h"
#include "encoder/image/pixels.h"

namespace deepencoder {
namespace {

constexpr size_t kFileHeader = 14;
enum Compression : uint32_t {
  kNone = 0,
  kRle8 = 1,
  kRle4 = 2,
  kBitFields = 3,
  kAlphaBitFields = 6
};

absl::Status Broken(const std::string& why) {
  return absl::InvalidArgumentError(absl::StrCat("broken or truncated BMP file: ", why));
}
absl::Status Unsupported(const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat("BMP files of ", what, " are not supported"));
}

// 0 past the end, which only happens after the length was checked to be short.
uint32_t Word(Bytes file, size_t at, size_t size) {
  return ReadInteger(file, at, size, std::endian::little).value_or(0);
}

struct Header {
  int64_t width, height;
  bool top_down;
  uint32_t bits;  // a pixel
  uint32_t compression;
  std::array<uint32_t, 3> masks;  // R, G, B of 16 and 32 bits
  uint32_t alpha_mask;            // of 32 bits; 0: none
  size_t palette_at, palette_entry, palette_size;
  size_t pixels_at;
};

bool IsContiguous(uint32_t mask) {
  if (mask == 0) return false;
  const uint32_t low = mask >> std::countr_zero(mask);
  return (low & (low + 1)) == 0;
}

// The first header of OS/2: 16-bit sides, palette entries of 3 bytes.
Header ReadCoreHeader(Bytes file) {
  Header header{};
  header.width = Word(file, kFileHeader + 4, 2);
  header.height = Word(file, kFileHeader + 6, 2);
  header.bits = Word(file, kFileHeader + 10, 2);
  header.palette_entry = 3;
  return header;
}

// BITMAPINFOHEADER and all that extend it.
Header ReadInfoHeader(Bytes file) {
  Header header{};
  header.width = static_cast<int32_t>(Word(file, kFileHeader + 4, 4));
  header.height = static_cast<int32_t>(Word(file, kFileHeader + 8, 4));
  header.top_down = header.height < 0;
  if (header.top_down) header.height = -header.height;
  header.bits = Word(file, kFileHeader + 14, 2);
  header.compression = Word(file, kFileHeader + 16, 4);
  header.palette_size = Word(file, kFileHeader + 32, 4);
  header.palette_entry = 4;
  return header;
}

absl::Status ReadMasks(Bytes file, size_t info_size, Header& header) {
  if (header.bits != 16 && header.bits != 32) return absl::OkStatus();
  header.masks = {0xFF0000, 0xFF00, 0xFF};
  if (header.bits == 16) header.masks = {0x7C00, 0x3E0, 0x1F};
  if (header.compression == kNone) return absl::OkStatus();
  for (size_t i = 0; i < 3; ++i) {
    header.masks[i] = Word(file, kFileHeader + 40 + 4 * i, 4);
    if (!IsContiguous(header.masks[i])) return Unsupported("scattered or empty colour masks");
  }
  if (header.compression == kBitFields && header.bits == 32 && info_size >= 56) {
    header.alpha_mask = Word(file, kFileHeader + 52, 4);
    if (header.alpha_mask != 0 && !IsContiguous(header.alpha_mask)) {
      return Unsupported("scattered alpha masks");
    }
  }
  // After the shortest header the masks lie between it and the palette.
  if (info_size == 40) header.palette_at += header.compression == kAlphaBitFields ? 16 : 12;
  return absl::OkStatus();
}

bool IsSupported(uint32_t bits, uint32_t compression) {
  switch (compression) {
    case kNone:
      return bits == 1 || bits == 4 || bits == 8 || bits == 16 || bits == 24 || bits == 32;
    case kRle8:
      return bits == 8;
    case kRle4:
      return bits == 4;
    case kBitFields:
    case kAlphaBitFields:
      return bits == 16 || bits == 32;
    default:
      return false;
  }
}

absl::StatusOr<Header> ReadHeader(Bytes file) {
  const uint32_t info_size = Word(file, kFileHeader, 4);
  constexpr std::array<uint32_t, 7> kInfoSizes = {12, 40, 52, 56, 64, 108, 124};
  if (file.size() < kFileHeader + 4) return Broken("the file ends in its header");
  if (std::find(kInfoSizes.begin(), kInfoSizes.end(), info_size) == kInfoSizes.end()) {
    return Broken(absl::StrCat("its header says a size of ", info_size, " bytes"));
  }
  if (file.size() < kFileHeader + info_size) return Broken("the file ends in its header");
  Header header = info_size == 12 ? ReadCoreHeader(file) : ReadInfoHeader(file);
  if (!IsSupported(header.bits, header.compression)) {
    return Unsupported(
        absl::StrCat(header.bits, " bits a pixel with compression ", header.compression));
  }
  header.pixels_at = Word(file, 10, 4);
  header.palette_at = kFileHeader + info_size;
  if (header.bits <= 8 && header.palette_size == 0) header.palette_size = size_t{1} << header.bits;
  header.palette_size = std::min(header.palette_size, size_t{256});
  const absl::Status masks = ReadMasks(file, info_size, header);
  if (!masks.ok()) return masks;
  if (header.pixels_at < kFileHeader + info_size) return Broken("its pixels start in its header");
  return header;
}

// RGB of each index; entries that are not there are black, or grey levels like the others.
Palette ReadPalette(Bytes file, const Header& header) {
  Palette palette{};
  const size_t end = std::min(file.size(), header.pixels_at);
  size_t entries = 0;
  for (; entries < header.palette_size; ++entries) {
    const size_t at = header.palette_at + entries * header.palette_entry;
    if (at + 3 > end) break;
    const uint8_t* bgr = AsUint8(file) + at;
    palette[entries] = {bgr[2], bgr[1], bgr[0]};
  }
  return header.bits == 8 && entries > 0 ? GreyIfRamp(palette, entries) : palette;
}

// ---------------------------------------------------------------- uncompressed rows

void IndexedRow(const uint8_t* from, uint32_t bits, const Palette& palette, cv::Vec3b* rgb,
                int width) {
  const uint32_t per_byte = 8 / bits, mask = (1u << bits) - 1;
  for (uint32_t x = 0; x < static_cast<uint32_t>(width); ++x) {
    const uint32_t shift = 8 - bits * (x % per_byte + 1);  // the leftmost pixel in the high bits
    rgb[x] = palette[from[x / per_byte] >> shift & mask];
  }
}

// A channel stretched to 0..255, rounding down.
uint8_t Channel(uint32_t pixel, uint32_t mask) {
  const int shift = std::countr_zero(mask);
  const uint64_t value = (pixel & mask) >> shift;
  return static_cast<uint8_t>(value * 255 / (mask >> shift));
}

// `alpha_mask`: of what the colours are laid on white by; 0: they are taken as they are.
void MaskedRow(const uint8_t* from, const Header& header, uint32_t alpha_mask, cv::Vec3b* rgb,
               int width) {
  const size_t bytes = header.bits / 8;
  for (int x = 0; x < width; ++x, from += bytes) {
    uint32_t pixel = 0;
    for (size_t i = bytes; i-- > 0;) pixel = pixel << 8 | from[i];
    for (int c = 0; c < 3; ++c) {
      const uint8_t colour = Channel(pixel, header.masks[static_cast<size_t>(c)]);
      rgb[x][c] = alpha_mask == 0 ? colour : OnWhite(colour, Channel(pixel, alpha_mask));
    }
  }
}

void BgrRow(const uint8_t* from, cv::Vec3b* rgb, int width) {
  for (int x = 0; x < width; ++x, from += 3) rgb[x] = {from[2], from[1], from[0]};
}

absl::Status ReadPlain(Bytes file, const Header& header, AlphaPolicy alpha, cv::Mat& rgb) {
  const size_t row_bytes = (static_cast<size_t>(header.width) * header.bits + 31) / 32 * 4;
  const Bytes pixels = Slice(file, header.pixels_at);
  // The padding of the last row may be missing.
  const size_t last_row = (static_cast<size_t>(header.width) * header.bits + 7) / 8;
  const size_t needed = row_bytes * static_cast<size_t>(header.height - 1) + last_row;
  if (pixels.size() < needed) {
    return Broken(absl::StrCat("its pixels need ", needed, " bytes, the file has ", pixels.size()));
  }
  const Palette palette = ReadPalette(file, header);
  for (int y = 0; y < rgb.rows; ++y) {
    const uint8_t* from = AsUint8(pixels) + row_bytes * static_cast<size_t>(y);
    auto* to = rgb.ptr<cv::Vec3b>(header.top_down ? y : rgb.rows - 1 - y);
    if (header.bits <= 8) {
      IndexedRow(from, header.bits, palette, to, rgb.cols);
    } else if (header.bits == 24) {
      BgrRow(from, to, rgb.cols);
    } else {
      MaskedRow(from, header, alpha == AlphaPolicy::kWhite ? header.alpha_mask : 0, to, rgb.cols);
    }
  }
  return absl::OkStatus();
}

// ---------------------------------------------------------------- run-length coded

// Palette indices of a picture as they are written: from left to right, from the first stored row on.
class RleCanvas {
 public:
  RleCanvas(int width, int height) : indices_(height, width, CV_8UC1, cv::Scalar(0)) {}

  // Past the end of its row a pixel is dropped.
  void Put(uint8_t index) {
    if (y_ < indices_.rows && x_ < indices_.cols) indices_.at<uint8_t>(y_, x_) = index;
    if (x_ < indices_.cols) ++x_;
  }
  void EndLine() { x_ = 0, ++y_; }
  void Move(int right, int up) {
    x_ = std::min(x_ + right, indices_.cols);
    y_ = std::min(y_ + up, indices_.rows);
  }
  bool full() const {
    return y_ >= indices_.rows || (y_ == indices_.rows - 1 && x_ == indices_.cols);
  }
  const cv::Mat& indices() const { return indices_; }

 private:
  cv::Mat indices_;
  int x_ = 0, y_ = 0;
};

// Pixels that the file leaves out by moving on or by ending the picture early have index 0.
absl::Status DecodeRle(Bytes codes, bool nibbles, RleCanvas& canvas) {
  enum Escape : uint8_t { kEndOfLine = 0, kEndOfPicture = 1, kDelta = 2 };
  const uint8_t* code = AsUint8(codes);
  const uint8_t* const end = code + codes.size();
  const auto index = [nibbles](const uint8_t* from, size_t i) -> uint8_t {
    if (!nibbles) return from[i];
    return i % 2 == 0 ? from[i / 2] >> 4 : from[i / 2] & 0xF;
  };
  const auto left = [&] { return static_cast<size_t>(end - code); };
  while (!canvas.full()) {
    if (left() < 2) return Broken("its run-length codes end early");
    const uint8_t count = code[0], value = code[1];
    code += 2;
    if (count > 0) {  // a run: one index, or two in turns
      for (size_t i = 0; i < count; ++i) canvas.Put(index(&value, nibbles ? i % 2 : 0));
    } else if (value == kEndOfLine) {
      canvas.EndLine();
    } else if (value == kEndOfPicture) {
      break;
    } else if (value == kDelta) {
      if (left() < 2) return Broken("its run-length codes end early");
      canvas.Move(code[0], code[1]);
      code += 2;
    } else {  // `value` indices as they are, padded to 16 bits
      const size_t bytes = nibbles ? (size_t{value} + 1) / 2 : value;
      if (left() < bytes) return Broken("its run-length codes end early");
      for (size_t i = 0; i < value; ++i) canvas.Put(index(code, i));
      code += std::min(bytes + bytes % 2, left());
    }
  }
  return absl::OkStatus();
}

absl::Status ReadRle(Bytes file, const Header& header, cv::Mat& rgb) {
  RleCanvas canvas(rgb.cols, rgb.rows);
  absl::Status decoded =
      DecodeRle(Slice(file, header.pixels_at), header.compression == kRle4, canvas);
  if (!decoded.ok()) return decoded;
  const Palette palette = ReadPalette(file, header);
  for (int y = 0; y < rgb.rows; ++y) {
    IndexedRow(canvas.indices().ptr(y), 8, palette,
               rgb.ptr<cv::Vec3b>(header.top_down ? y : rgb.rows - 1 - y), rgb.cols);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<StoredSize> ReadBmpSize(Bytes file) {
  const auto header = ReadHeader(file);
  if (!header.ok()) return header.status();
  return StoredSize{header->width, header->height};
}

absl::StatusOr<Decoded> DecodeBmp(Bytes file, const ImageHeader& image,
                                  const DecodeOptions& options) {
  const auto header = ReadHeader(file);
  if (!header.ok()) return header.status();
  cv::Mat rgb(image.height, image.width, CV_8UC3);
  const bool rle = header->compression == kRle8 || header->compression == kRle4;
  const absl::Status read =
      rle ? ReadRle(file, *header, rgb) : ReadPlain(file, *header, options.alpha, rgb);
  if (!read.ok()) return read;
  return Decoded{rgb, kUpright};
}

}  // namespace deepencoder
