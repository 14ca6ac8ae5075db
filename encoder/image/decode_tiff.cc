// TIFF over libtiff, from memory: grey, palette, RGB and CMYK of 8 and 16 bits, grey and palette of 1, 2
// and 4, YCbCr; strips and tiles, chunky and planar. First directory only.
//
// Untrusted: libtiff is handed nothing before the directory is checked against the lists and sizes
// below, its messages go to the reader of that file (no global handler), and its allocations are capped.
#include <tiffio.h>

#include <algorithm>
#include <array>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "encoder/image/formats.h"
#include "encoder/image/orientation.h"
#include "encoder/image/pixels.h"
#include "encoder/image/tiff_limits.h"

namespace deepencoder {
namespace {

absl::Status Broken(const std::string& why) {
  return absl::InvalidArgumentError(absl::StrCat("broken or truncated TIFF file: ", why));
}
absl::Status Unsupported(const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat("TIFF files with ", what, " are not supported"));
}

// Old-style JPEG (6) and what else libtiff may have been built with stay out of reach.
bool IsAllowed(uint16_t compression) {
  constexpr std::array<uint16_t, 10> kAllowed = {
      COMPRESSION_NONE,     COMPRESSION_CCITTRLE, COMPRESSION_CCITTFAX3, COMPRESSION_CCITTFAX4,
      COMPRESSION_LZW,      COMPRESSION_JPEG,     COMPRESSION_DEFLATE,   COMPRESSION_ADOBE_DEFLATE,
      COMPRESSION_PACKBITS, COMPRESSION_ZSTD};
  return std::find(kAllowed.begin(), kAllowed.end(), compression) != kAllowed.end();
}

// The file as libtiff's client callbacks see it, and what libtiff said.
struct Client {
  Bytes file;
  uint64_t at = 0;
  std::array<char, 200> error{};  // the first

  static tmsize_t Read(thandle_t handle, void* to, tmsize_t size) {
    auto* self = static_cast<Client*>(handle);
    if (size < 0 || self->at >= self->file.size()) return 0;
    const size_t count = std::min<size_t>(static_cast<size_t>(size), self->file.size() - self->at);
    std::memcpy(to, self->file.data() + self->at, count);
    self->at += count;
    return static_cast<tmsize_t>(count);
  }
  static tmsize_t Write(thandle_t, void*, tmsize_t) { return -1; }
  static toff_t Seek(thandle_t handle, toff_t offset, int whence) {
    auto* self = static_cast<Client*>(handle);
    if (whence == SEEK_SET) self->at = offset;
    if (whence == SEEK_CUR) self->at += offset;
    if (whence == SEEK_END) self->at = self->file.size() + offset;
    return self->at;
  }
  static int Close(thandle_t) { return 0; }
  static toff_t Size(thandle_t handle) { return static_cast<Client*>(handle)->file.size(); }

  void Note(const char* format, va_list args) {
    if (error[0] == '\0') std::vsnprintf(error.data(), error.size(), format, args);
  }
  // Handlers return 1: handled, not to be printed.
  static int OnError(TIFF*, void* self, const char*, const char* format, va_list args) {
    static_cast<Client*>(self)->Note(format, args);
    return 1;
  }
  // The JPEG and fax decoders only warn when data is missing, and go on with invented pixels.
  static int OnWarning(TIFF*, void* self, const char*, const char* format, va_list args) {
    std::array<char, 200> text{};
    va_list again;
    va_copy(again, args);
    // NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): va_copy made it
    std::vsnprintf(text.data(), text.size(), format, again);
    va_end(again);
    const std::string_view view = text.data();
    for (const std::string_view missing : {"remature end", "remature EOF", "Corrupt JPEG"}) {
      if (view.find(missing) != std::string_view::npos) {
        static_cast<Client*>(self)->Note(format, args);
        break;
      }
    }
    return 1;
  }
};

struct Layout {
  uint32_t width, height;
  uint16_t bits, samples, photometric, planar, compression;
  int colours;  // samples that make the colour
  int alpha;    // EXTRASAMPLE_ value of the first further sample; -1: there is none
  int kept() const { return colours + (alpha >= 0 ? 1 : 0); }
};

class TiffReader {
 public:
  explicit TiffReader(Bytes file) : client_{file} {}

  absl::Status Open() {
    const uint64_t max_allocation = MaxTiffAllocation(client_.file);
    const std::unique_ptr<TIFFOpenOptions, void (*)(TIFFOpenOptions*)> options(
        TIFFOpenOptionsAlloc(), TIFFOpenOptionsFree);
    if (options == nullptr) return absl::ResourceExhaustedError("no memory for libtiff");
    TIFFOpenOptionsSetMaxSingleMemAlloc(options.get(), static_cast<tmsize_t>(max_allocation));
    TIFFOpenOptionsSetErrorHandlerExtR(options.get(), Client::OnError, &client_);
    TIFFOpenOptionsSetWarningHandlerExtR(options.get(), Client::OnWarning, &client_);
    // m: no memory mapping, all bytes come by Read.
    tiff_.reset(TIFFClientOpenExt("image", "rm", &client_, Client::Read, Client::Write,
                                  Client::Seek, Client::Close, Client::Size, nullptr, nullptr,
                                  options.get()));
    if (tiff_ == nullptr) return Error("no directory");
    client_.error[0] = '\0';  // complaints about tags that libtiff then left out
    return absl::OkStatus();
  }

  absl::StatusOr<StoredSize> Size() const {
    uint32_t width = 0, height = 0;
    if (TIFFGetField(tiff_.get(), TIFFTAG_IMAGEWIDTH, &width) == 0 ||
        TIFFGetField(tiff_.get(), TIFFTAG_IMAGELENGTH, &height) == 0) {
      return Error("no width or height");
    }
    return StoredSize{width, height};
  }

  absl::StatusOr<Layout> ReadLayout() const;
  absl::StatusOr<cv::Mat> ReadSamples(const Layout& layout, Gray16Policy gray16);
  bool ConvertsYcbcr(const Layout& layout) const;
  absl::StatusOr<cv::Mat> ReadYcbcr(const Layout& layout);
  absl::StatusOr<std::array<cv::Vec3b, 256>> ReadPalette(const Layout& layout) const;
  int Orientation() const;
  // Errors: INVALID_ARGUMENT if decoding would take more than the size lets expect.
  absl::Status CheckLimits(bool as_ycbcr) const;
  TIFF* get() const { return tiff_.get(); }

 private:
  absl::Status Error(const char* otherwise) const {
    return Broken(client_.error[0] != '\0' ? client_.error.data() : otherwise);
  }
  absl::Status ReadStrips(const Layout& layout, Gray16Policy gray16, cv::Mat& raster);
  absl::Status ReadTiles(const Layout& layout, Gray16Policy gray16, cv::Mat& raster);

  Client client_;
  std::unique_ptr<TIFF, void (*)(TIFF*)> tiff_{nullptr, TIFFClose};
};

uint16_t Field(TIFF* tiff, uint32_t tag, uint16_t otherwise) {
  uint16_t value = otherwise;
  if (TIFFGetFieldDefaulted(tiff, tag, &value) == 0) return otherwise;
  return value;
}

int ColourSamples(uint16_t photometric) {
  switch (photometric) {
    case PHOTOMETRIC_MINISWHITE:
    case PHOTOMETRIC_MINISBLACK:
    case PHOTOMETRIC_PALETTE:
      return 1;
    case PHOTOMETRIC_RGB:
    case PHOTOMETRIC_YCBCR:
      return 3;
    case PHOTOMETRIC_SEPARATED:
      return 4;
    default:
      return 0;
  }
}

// Grey of several samples is nobody's RGB; dark on light it has no alpha either.
int MostSamples(uint16_t photometric) {
  if (photometric == PHOTOMETRIC_MINISWHITE) return 1;
  return photometric == PHOTOMETRIC_MINISBLACK ? 2 : 8;
}

absl::StatusOr<Layout> TiffReader::ReadLayout() const {
  TIFF* tiff = tiff_.get();
  const auto size = Size();
  if (!size.ok()) return size.status();
  Layout layout{};
  layout.width = static_cast<uint32_t>(size->width);
  layout.height = static_cast<uint32_t>(size->height);
  layout.bits = Field(tiff, TIFFTAG_BITSPERSAMPLE, 1);
  layout.samples = Field(tiff, TIFFTAG_SAMPLESPERPIXEL, 1);
  layout.planar = Field(tiff, TIFFTAG_PLANARCONFIG, PLANARCONFIG_CONTIG);
  layout.compression = Field(tiff, TIFFTAG_COMPRESSION, COMPRESSION_NONE);
  layout.photometric = Field(tiff, TIFFTAG_PHOTOMETRIC, PHOTOMETRIC_MINISWHITE);  // as Pillow does
  layout.colours = ColourSamples(layout.photometric);
  layout.alpha = -1;
  if (!IsAllowed(layout.compression)) {
    return Unsupported(absl::StrCat("compression ", layout.compression));
  }
  if (layout.colours == 0) {
    return Unsupported(absl::StrCat("photometric interpretation ", layout.photometric));
  }
  const uint16_t sample_format = Field(tiff, TIFFTAG_SAMPLEFORMAT, SAMPLEFORMAT_UINT);
  const bool narrow = layout.bits == 1 || layout.bits == 2 || layout.bits == 4;
  const bool wide = layout.bits == 8 || layout.bits == 16;
  if (!(wide || (narrow && layout.samples == 1)) ||
      (sample_format != SAMPLEFORMAT_UINT && sample_format != SAMPLEFORMAT_VOID)) {
    return Unsupported(absl::StrCat(layout.samples, " samples of ", layout.bits,
                                    " bits in sample format ", sample_format));
  }
  const int most = MostSamples(layout.photometric);
  if (layout.samples < layout.colours || layout.samples > most) {
    return Unsupported(absl::StrCat(
        layout.samples, " samples a pixel in photometric interpretation ", layout.photometric));
  }
  if (layout.photometric == PHOTOMETRIC_YCBCR && layout.compression == COMPRESSION_JPEG &&
      layout.planar == PLANARCONFIG_SEPARATE) {
    return Unsupported(
        "JPEG data of Y, Cb and Cr in separate planes");  // libtiff converts no such planes
  }
  if (layout.photometric == PHOTOMETRIC_SEPARATED &&
      Field(tiff, TIFFTAG_INKSET, INKSET_CMYK) != INKSET_CMYK) {
    return Unsupported("inks other than CMYK");
  }
  const bool may_have_alpha =
      layout.colours == 3 || (layout.colours == 1 && layout.photometric != PHOTOMETRIC_PALETTE);
  if (layout.samples > layout.colours && may_have_alpha) {
    uint16_t count = 0;
    const uint16_t* extra = nullptr;
    const bool stated = TIFFGetField(tiff, TIFFTAG_EXTRASAMPLES, &count, &extra) != 0 &&
                        count > 0 && extra != nullptr;
    layout.alpha = stated ? extra[0] : EXTRASAMPLE_UNASSALPHA;
    if (layout.alpha == EXTRASAMPLE_UNSPECIFIED) layout.alpha = -1;
  }
  return layout;
}

// ---------------------------------------------------------------- samples

// 8 bits of the samples of one stored row: of the `stored` samples a pixel the `kept` first, which go to the
// start of every `step` bytes.
struct RowFormat {
  uint32_t bits;
  uint32_t stored;  // samples a pixel in the row
  uint32_t kept;    // of which these many first are taken
  uint32_t step;    // samples a pixel in the raster
  bool grow;        // stretch 1, 2 and 4 bits to 0..255 (grey); false: keep (palette indices)
  bool saturate;    // 16 bits: min(v, 255); false: high byte
};

void ConvertRow(const uint8_t* from, const RowFormat& format, uint8_t* to, uint32_t pixels) {
  if (format.bits < 8) {
    const uint32_t per_byte = 8 / format.bits, mask = (1u << format.bits) - 1;
    const uint32_t scale = format.grow ? 255 / mask : 1;
    for (uint32_t x = 0; x < pixels; ++x) {
      const uint32_t shift = 8 - format.bits * (x % per_byte + 1);
      to[size_t{x} * format.step] =
          static_cast<uint8_t>((from[x / per_byte] >> shift & mask) * scale);
    }
    return;
  }
  const size_t bytes = format.bits / 8;
  for (size_t x = 0; x < pixels; ++x) {
    for (size_t c = 0; c < format.kept; ++c) {
      const uint8_t* sample = from + (x * format.stored + c) * bytes;
      uint8_t value = *sample;
      if (format.bits == 16) {
        uint16_t word = 0;  // in native order: libtiff has swapped it
        std::memcpy(&word, sample, sizeof(word));
        value = format.saturate ? static_cast<uint8_t>(std::min<uint16_t>(word, 255))
                                : static_cast<uint8_t>(word >> 8);
      }
      to[x * format.step + c] = value;
    }
  }
}

RowFormat FormatOf(const Layout& layout, Gray16Policy gray16) {
  const bool planar = layout.planar == PLANARCONFIG_SEPARATE;
  const auto kept = static_cast<uint32_t>(layout.kept());
  return {.bits = layout.bits,
          .stored = planar ? 1u : layout.samples,
          .kept = planar ? 1u : kept,
          .step = kept,
          .grow = layout.photometric != PHOTOMETRIC_PALETTE,
          .saturate = gray16 == Gray16Policy::kSaturate && kept == 1};
}

size_t BytesOfRow(const RowFormat& format, uint32_t pixels) {
  return (size_t{pixels} * format.stored * format.bits + 7) / 8;
}

absl::Status TiffReader::ReadStrips(const Layout& layout, Gray16Policy gray16, cv::Mat& raster) {
  const RowFormat format = FormatOf(layout, gray16);
  const tmsize_t row_bytes = TIFFScanlineSize(tiff_.get());
  if (row_bytes < static_cast<tmsize_t>(BytesOfRow(format, layout.width))) {
    return Error("a row is shorter than its width");
  }
  std::vector<uint8_t> row(static_cast<size_t>(row_bytes));
  const int planes = format.stored == 1 ? layout.kept() : 1;
  for (int plane = 0; plane < planes; ++plane) {
    for (uint32_t y = 0; y < layout.height; ++y) {
      if (TIFFReadScanline(tiff_.get(), row.data(), y, static_cast<uint16_t>(plane)) != 1) {
        return Error("a strip is missing");
      }
      ConvertRow(row.data(), format, raster.ptr(static_cast<int>(y)) + plane, layout.width);
    }
  }
  return absl::OkStatus();
}

absl::Status TiffReader::ReadTiles(const Layout& layout, Gray16Policy gray16, cv::Mat& raster) {
  const RowFormat format = FormatOf(layout, gray16);
  uint32_t tile_width = 0, tile_height = 0;
  TIFFGetField(tiff_.get(), TIFFTAG_TILEWIDTH, &tile_width);
  TIFFGetField(tiff_.get(), TIFFTAG_TILELENGTH, &tile_height);
  const tmsize_t row_bytes = TIFFTileRowSize(tiff_.get());
  const tmsize_t tile_bytes = TIFFTileSize(tiff_.get());
  if (row_bytes < static_cast<tmsize_t>(BytesOfRow(format, tile_width)) ||
      tile_bytes < row_bytes * static_cast<tmsize_t>(tile_height)) {
    return Error("a tile is smaller than it says");
  }
  std::vector<uint8_t> buffer(static_cast<size_t>(tile_bytes));
  const int planes = format.stored == 1 ? layout.kept() : 1;
  for (int plane = 0; plane < planes; ++plane) {
    for (uint32_t top = 0; top < layout.height; top += tile_height) {
      for (uint32_t left = 0; left < layout.width; left += tile_width) {
        if (TIFFReadTile(tiff_.get(), buffer.data(), left, top, 0, static_cast<uint16_t>(plane)) <
            0) {
          return Error("a tile is missing");
        }
        const uint32_t rows = std::min(tile_height, layout.height - top);
        for (uint32_t y = 0; y < rows; ++y) {
          ConvertRow(buffer.data() + static_cast<size_t>(row_bytes) * y, format,
                     raster.ptr(static_cast<int>(top + y)) + size_t{left} * format.step + plane,
                     std::min(tile_width, layout.width - left));
        }
      }
    }
  }
  return absl::OkStatus();
}

absl::Status TiffReader::CheckLimits(bool as_ycbcr) const {
  // libtiff's conversion of YCbCr holds all planes of a tile.
  const auto excess = TiffExcess(tiff_.get(), client_.file, /*planes_together=*/as_ycbcr);
  return excess ? Broken(*excess) : absl::OkStatus();
}

absl::StatusOr<cv::Mat> TiffReader::ReadSamples(const Layout& layout, Gray16Policy gray16) {
  cv::Mat raster(static_cast<int>(layout.height), static_cast<int>(layout.width),
                 CV_8UC(layout.kept()));
  const absl::Status read = TIFFIsTiled(tiff_.get()) != 0 ? ReadTiles(layout, gray16, raster)
                                                          : ReadStrips(layout, gray16, raster);
  if (!read.ok()) return read;
  if (client_.error[0] != '\0') return Error("");  // libtiff went on after a complaint
  return raster;
}

// Whether the colour matrix is libtiff's: where it unpacks the data for Pillow, or chroma is subsampled.
bool TiffReader::ConvertsYcbcr(const Layout& layout) const {
  if (layout.photometric != PHOTOMETRIC_YCBCR || layout.compression == COMPRESSION_JPEG)
    return false;
  uint16_t across = 0, down = 0;
  TIFFGetFieldDefaulted(tiff_.get(), TIFFTAG_YCBCRSUBSAMPLING, &across, &down);
  return layout.compression != COMPRESSION_NONE || layout.kept() != 3 || layout.bits != 8 ||
         across != 1 || down != 1;
}

absl::StatusOr<cv::Mat> TiffReader::ReadYcbcr(const Layout& layout) {
  std::array<char, 1024> why{};
  TIFFRGBAImage image;
  if (TIFFRGBAImageBegin(&image, tiff_.get(), /*stop=*/1, why.data()) == 0)
    return Broken(why.data());
  const std::unique_ptr<TIFFRGBAImage, void (*)(TIFFRGBAImage*)> owner(&image, TIFFRGBAImageEnd);
  image.req_orientation = image.orientation;  // as stored; turned later like every format
  cv::Mat rgba(static_cast<int>(layout.height), static_cast<int>(layout.width), CV_32SC1);
  if (TIFFRGBAImageGet(&image, rgba.ptr<uint32_t>(), layout.width, layout.height) == 0 ||
      client_.error[0] != '\0') {
    return Error("its pixels cannot be read");
  }
  cv::Mat rgb(rgba.size(), CV_8UC3);
  for (int y = 0; y < rgb.rows; ++y) {
    const auto* from = rgba.ptr<uint32_t>(y);
    auto* to = rgb.ptr<cv::Vec3b>(y);
    for (int x = 0; x < rgb.cols; ++x) {
      to[x] = {static_cast<uint8_t>(TIFFGetR(from[x])), static_cast<uint8_t>(TIFFGetG(from[x])),
               static_cast<uint8_t>(TIFFGetB(from[x]))};
    }
  }
  return rgb;
}

// Entries are 16 bits wide; the high byte counts.
absl::StatusOr<std::array<cv::Vec3b, 256>> TiffReader::ReadPalette(const Layout& layout) const {
  uint16_t *red = nullptr, *green = nullptr, *blue = nullptr;
  if (layout.bits > 8) return Unsupported("palettes of more than 256 colours");
  if (TIFFGetField(tiff_.get(), TIFFTAG_COLORMAP, &red, &green, &blue) == 0) {
    return Error("no colour map");
  }
  std::array<cv::Vec3b, 256> palette{};
  for (size_t i = 0; i < size_t{1} << layout.bits; ++i) {
    palette[i] = {static_cast<uint8_t>(red[i] >> 8), static_cast<uint8_t>(green[i] >> 8),
                  static_cast<uint8_t>(blue[i] >> 8)};
  }
  return palette;
}

int TiffReader::Orientation() const {
  uint16_t orientation = 0;
  if (TIFFGetField(tiff_.get(), TIFFTAG_ORIENTATION, &orientation) != 0) {
    return ChooseOrientation(orientation, std::nullopt);
  }
  uint32_t size = 0;
  const char* xmp = nullptr;
  if (TIFFGetField(tiff_.get(), TIFFTAG_XMLPACKET, &size, &xmp) == 0 || xmp == nullptr)
    return kUpright;
  return ChooseOrientation(std::nullopt, XmpOrientation({xmp, size}));
}

// ---------------------------------------------------------------- samples -> RGB

// Colours stored multiplied by their alpha are divided by it, as Pillow does on reading.
uint8_t Unmultiplied(uint8_t colour, uint8_t alpha) {
  if (alpha == 0) return 0;
  return static_cast<uint8_t>(std::min(255u, colour * 255u / alpha));
}

void ColourRow(const uint8_t* from, const Layout& layout, const DecodeOptions& options,
               cv::Vec3b* rgb, int width) {
  const int step = layout.kept(), last = layout.colours == 3 ? 1 : 0;
  // The reference does not invert grey of 16 bits, so neither is it where that is asked for.
  const bool as_stored = layout.bits == 16 && options.gray16 == Gray16Policy::kSaturate;
  const uint8_t flip = layout.photometric == PHOTOMETRIC_MINISWHITE && !as_stored ? 0xFF : 0;
  for (int x = 0; x < width; ++x, from += step) {
    for (int c = 0; c < 3; ++c) {
      auto value = static_cast<uint8_t>(from[c * last] ^ flip);
      if (layout.alpha >= 0) {
        const uint8_t alpha = from[layout.colours];
        if (layout.alpha == EXTRASAMPLE_ASSOCALPHA && layout.colours == 3) {
          value = Unmultiplied(value, alpha);
        }
        if (options.alpha == AlphaPolicy::kWhite) value = OnWhite(value, alpha);
      }
      rgb[x][c] = value;
    }
  }
}

absl::StatusOr<cv::Mat> ToRgb(const cv::Mat& raster, const Layout& layout, const TiffReader& reader,
                              const DecodeOptions& options) {
  std::array<cv::Vec3b, 256> palette{};
  if (layout.photometric == PHOTOMETRIC_PALETTE) {
    const auto read = reader.ReadPalette(layout);
    if (!read.ok()) return read.status();
    palette = *read;
  }
  cv::Mat rgb(raster.size(), CV_8UC3);
  for (int y = 0; y < rgb.rows; ++y) {
    const uint8_t* from = raster.ptr(y);
    if (layout.photometric == PHOTOMETRIC_PALETTE) {
      std::transform(from, from + rgb.cols, rgb.ptr<cv::Vec3b>(y),
                     [&](uint8_t index) { return palette[index]; });
    } else if (layout.photometric == PHOTOMETRIC_SEPARATED) {
      CmykToRgb(from, /*inverted=*/false, rgb.ptr(y), static_cast<size_t>(rgb.cols));
    } else if (layout.photometric == PHOTOMETRIC_YCBCR && layout.compression == COMPRESSION_NONE) {
      YcbcrToRgb(from, rgb.ptr(y), static_cast<size_t>(rgb.cols));
    } else {
      ColourRow(from, layout, options, rgb.ptr<cv::Vec3b>(y), rgb.cols);
    }
  }
  return rgb;
}

}  // namespace

absl::StatusOr<Decoded> DecodeTiff(Bytes file, const ImageHeader& header,
                                   const DecodeOptions& options) {
  TiffReader reader(file);
  const absl::Status open = reader.Open();
  if (!open.ok()) return open;
  const auto layout = reader.ReadLayout();
  if (!layout.ok()) return layout.status();
  if (StoredSize{layout->width, layout->height} != StoredSize{header.width, header.height}) {
    return absl::InvalidArgumentError(kTwoSizes);
  }
  // Before the limits are checked: it changes the size of a tile.
  if (layout->photometric == PHOTOMETRIC_YCBCR && layout->compression == COMPRESSION_JPEG) {
    TIFFSetField(reader.get(), TIFFTAG_JPEGCOLORMODE, JPEGCOLORMODE_RGB);
  }
  const bool by_libtiff = reader.ConvertsYcbcr(*layout);
  if (absl::Status status = reader.CheckLimits(by_libtiff); !status.ok()) return status;
  if (by_libtiff) {
    auto rgb = reader.ReadYcbcr(*layout);
    if (!rgb.ok()) return rgb.status();
    return Decoded{*rgb, reader.Orientation()};
  }
  const auto raster = reader.ReadSamples(*layout, options.gray16);
  if (!raster.ok()) return raster.status();
  const auto rgb = ToRgb(*raster, *layout, reader, options);
  if (!rgb.ok()) return rgb.status();
  return Decoded{*rgb, reader.Orientation()};
}

}  // namespace deepencoder
