// PNG over libpng. Its errors leave by longjmp, as libjpeg's do: see decode_jpeg.cc.
#include <png.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <csetjmp>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "encoder/image/formats.h"
#include "encoder/image/orientation.h"
#include "encoder/image/pixels.h"

namespace deepencoder {
namespace {

constexpr size_t kSignatureBytes = 8;
// Bytes of a text chunk, inflated if it is compressed, that are looked at.
constexpr size_t kMaxMetadata = size_t{1} << 20;

absl::Status Broken(const std::string& why) {
  return absl::InvalidArgumentError(absl::StrCat("broken or truncated PNG file: ", why));
}

// ---------------------------------------------------------------- orientation

std::string Inflate(Bytes compressed) {
  std::string text(std::min(kMaxMetadata, compressed.size() * 1032 + 64), '\0');  // deflate's best
  z_stream stream{};
  if (inflateInit(&stream) != Z_OK) return {};
  stream.next_in = const_cast<Bytef*>(AsUint8(compressed));  // zlib does not write to it
  stream.avail_in = static_cast<uInt>(compressed.size());
  stream.next_out = reinterpret_cast<Bytef*>(text.data());
  stream.avail_out = static_cast<uInt>(text.size());
  inflate(&stream, Z_FINISH);  // whatever came out is used: metadata is never an error
  text.resize(stream.total_out);
  inflateEnd(&stream);
  return text;
}

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// ImageMagick's "Raw profile type exif": a newline, the name, the length, then the block in hexadecimal.
std::optional<int> RawProfileOrientation(std::string_view text) {
  for (int line = 0; line < 3; ++line) {
    const size_t end = text.find('\n');
    if (end == std::string_view::npos) return std::nullopt;
    text.remove_prefix(end + 1);
  }
  std::vector<std::byte> exif;
  int high = -1;
  for (const char c : text) {
    const int digit = HexDigit(c);
    if (digit < 0) continue;
    if (high >= 0) exif.push_back(static_cast<std::byte>(high << 4 | digit));
    high = high < 0 ? digit : -1;
  }
  return ExifOrientation(exif);
}

// The text of a tEXt or zTXt chunk after its keyword and the 0 that ends it.
std::string PlainText(bool compressed, Bytes rest) {
  if (compressed) return Inflate(Slice(rest, 1));  // method
  return std::string(AsText(Slice(rest, 0, kMaxMetadata)));
}

// The same of an iTXt chunk.
std::string InternationalText(Bytes rest) {
  const auto compressed = ReadInteger(rest, 0, 1, std::endian::big);
  size_t at = 2;                             // flag, method
  for (int field = 0; field < 2; ++field) {  // language, translated keyword
    const size_t end = AsText(rest).find('\0', at);
    if (end == std::string_view::npos) return {};
    at = end + 1;
  }
  if (compressed == 1u) return Inflate(Slice(rest, at));
  return std::string(AsText(Slice(rest, at, kMaxMetadata)));
}

struct RawProfile {
  bool compressed;
  Bytes rest;
};

// The first eXIf chunk that says one, and the last chunk of each kind of text: a file may have thousands,
// so only what counts is inflated.
int OrientationOf(Bytes file) {
  using std::string_view_literals::operator""sv;
  constexpr auto kRawExif = "Raw profile type exif\0"sv, kXmp = "XML:com.adobe.xmp\0"sv;
  std::optional<int> exif, xmp;
  std::optional<RawProfile> raw_exif;
  std::optional<Bytes> international;
  size_t at = kSignatureBytes;
  while (const auto length = ReadInteger(file, at, 4, std::endian::big)) {
    const Bytes type = Slice(file, at + 4, 4);
    const Bytes data = Slice(file, at + 8, *length);
    const bool compressed = StartsWith(type, "zTXt");
    if (StartsWith(type, "eXIf") && !exif) {
      exif = ExifOrientation(data);
    } else if ((compressed || StartsWith(type, "tEXt")) && StartsWith(data, kRawExif)) {
      raw_exif = {compressed, data.subspan(kRawExif.size())};
    } else if (StartsWith(type, "iTXt") && StartsWith(data, kXmp)) {
      international = data.subspan(kXmp.size());
    }
    at += size_t{12} + *length;
  }
  if (!exif && raw_exif)
    exif = RawProfileOrientation(PlainText(raw_exif->compressed, raw_exif->rest));
  if (international) xmp = XmpOrientation(InternationalText(*international));
  return ChooseOrientation(exif, xmp);
}

// ---------------------------------------------------------------- pixels

class PngReader {
 public:
  explicit PngReader(Bytes file) : file_(file) {}
  ~PngReader() { png_destroy_read_struct(&png_, &info_, nullptr); }
  PngReader(const PngReader&) = delete;
  PngReader& operator=(const PngReader&) = delete;

  absl::Status ReadInfo() {
    png_ = png_create_read_struct(PNG_LIBPNG_VER_STRING, this, Fail, IgnoreWarning);
    if (png_ != nullptr) info_ = png_create_info_struct(png_);
    if (info_ == nullptr) return absl::ResourceExhaustedError("no memory for libpng");
    const bool done = Guard([&] {
      png_set_read_fn(png_, this, Read);
      png_set_user_limits(png_, kMaxStoredSide, kMaxStoredSide);
      png_set_crc_action(png_, PNG_CRC_ERROR_QUIT, PNG_CRC_ERROR_QUIT);
      // Of the ancillary chunks libpng parses tRNS alone: no colour profile, no inflated text.
      png_set_keep_unknown_chunks(png_, PNG_HANDLE_CHUNK_NEVER, nullptr, -1);
      png_read_info(png_, info_);
    });
    return done ? absl::OkStatus() : Broken(error_.data());
  }

  // What ReadRows will give: interleaved samples of 8 bits, or of 16 in native order.
  struct Layout {
    int width, height, channels, bits;
  };

  // `alpha`: keep it, or make it of tRNS. `gray16`: keep 16 bits of a grey file.
  absl::StatusOr<Layout> Prepare(bool alpha, bool gray16) {
    const bool wide_gray = gray16 && png_get_color_type(png_, info_) == PNG_COLOR_TYPE_GRAY &&
                           png_get_bit_depth(png_, info_) == 16;
    const bool done = Guard([&] {
      if (png_get_color_type(png_, info_) == PNG_COLOR_TYPE_PALETTE) png_set_palette_to_rgb(png_);
      png_set_expand_gray_1_2_4_to_8(png_);
      if (alpha) {
        if (png_get_valid(png_, info_, PNG_INFO_tRNS) != 0) png_set_tRNS_to_alpha(png_);
      } else {
        png_set_strip_alpha(png_);
      }
      if (wide_gray) {
        if constexpr (std::endian::native == std::endian::little) png_set_swap(png_);
      } else {
        png_set_strip_16(png_);  // the high byte
        png_set_gray_to_rgb(png_);
      }
      png_set_interlace_handling(png_);
      png_read_update_info(png_, info_);
    });
    if (!done) return Broken(error_.data());
    return Layout{static_cast<int>(png_get_image_width(png_, info_)),
                  static_cast<int>(png_get_image_height(png_, info_)),
                  png_get_channels(png_, info_), png_get_bit_depth(png_, info_)};
  }

  // `raster` has the layout that Prepare told. Reads to the end of the file, so that one cut off after
  // its pixels is found out too.
  absl::Status ReadRows(cv::Mat& raster) {
    std::vector<png_bytep> rows(static_cast<size_t>(raster.rows));
    for (int y = 0; y < raster.rows; ++y) rows[static_cast<size_t>(y)] = raster.ptr(y);
    const bool done = Guard([&] {
      png_read_image(png_, rows.data());
      png_read_end(png_, nullptr);
    });
    return done ? absl::OkStatus() : Broken(error_.data());
  }

 private:
  template <typename Step>
  bool Guard(const Step& step) {
    if (setjmp(jump_) != 0) return false;  // NOLINT(cert-err52-cpp): libpng's way
    step();
    return true;
  }

  [[noreturn]] static void Fail(png_structp png, png_const_charp message) {
    auto* self = static_cast<PngReader*>(png_get_error_ptr(png));
    std::snprintf(self->error_.data(), self->error_.size(), "%s", message);
    std::longjmp(self->jump_, 1);  // NOLINT(cert-err52-cpp)
  }
  static void IgnoreWarning(png_structp, png_const_charp) {}
  static void Read(png_structp png, png_bytep to, size_t size) {
    auto* self = static_cast<PngReader*>(png_get_io_ptr(png));
    if (size > self->file_.size() - self->at_) png_error(png, "the file ends early");
    std::memcpy(to, self->file_.data() + self->at_, size);
    self->at_ += size;
  }

  Bytes file_;
  size_t at_ = 0;
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
  std::jmp_buf jump_{};
  std::array<char, 160> error_{};
};

// Grey of 16 bits, with or without alpha -> RGB, saturating.
void SaturateRow(const uint16_t* row, int channels, uint8_t* rgb, size_t pixels) {
  for (size_t i = 0; i < pixels; ++i) {
    const uint16_t* pixel = row + i * static_cast<size_t>(channels);
    auto gray = static_cast<uint8_t>(std::min<uint16_t>(pixel[0], 255));
    if (channels == 2) gray = OnWhite(gray, static_cast<uint8_t>(pixel[1] >> 8));
    rgb[3 * i] = rgb[3 * i + 1] = rgb[3 * i + 2] = gray;
  }
}

cv::Mat ToRgb(const cv::Mat& raster) {
  cv::Mat rgb(raster.rows, raster.cols, CV_8UC3);
  const auto pixels = static_cast<size_t>(raster.cols);
  for (int y = 0; y < raster.rows; ++y) {
    if (raster.depth() == CV_16U) {
      SaturateRow(raster.ptr<uint16_t>(y), raster.channels(), rgb.ptr(y), pixels);
    } else {
      CompositeOnWhite(raster.ptr(y), rgb.ptr(y), pixels);
    }
  }
  return rgb;
}

}  // namespace

absl::StatusOr<StoredSize> ReadPngSize(Bytes file) {
  // Signature, then always the chunk IHDR of 13 bytes, which starts with width and height.
  const auto length = ReadInteger(file, 8, 4, std::endian::big);
  const auto width = ReadInteger(file, 16, 4, std::endian::big);
  const auto height = ReadInteger(file, 20, 4, std::endian::big);
  if (!height) return Broken("the file ends in its header");
  if (length != 13u || !StartsWith(Slice(file, 12), "IHDR")) return Broken("no IHDR chunk");
  return StoredSize{*width, *height};
}

absl::StatusOr<Decoded> DecodePng(Bytes file, const ImageHeader& header,
                                  const DecodeOptions& options) {
  PngReader reader(file);
  const absl::Status info = reader.ReadInfo();
  if (!info.ok()) return info;
  const auto layout = reader.Prepare(options.alpha == AlphaPolicy::kWhite,
                                     options.gray16 == Gray16Policy::kSaturate);
  if (!layout.ok()) return layout.status();
  if (layout->width != header.width || layout->height != header.height) {
    return Broken("more than one IHDR chunk");
  }
  cv::Mat raster(header.height, header.width,
                 CV_MAKETYPE(layout->bits == 16 ? CV_16U : CV_8U, layout->channels));
  const absl::Status rows = reader.ReadRows(raster);
  if (!rows.ok()) return rows;
  return Decoded{raster.type() == CV_8UC3 ? raster : ToRgb(raster), OrientationOf(file)};
}

}  // namespace deepencoder
