#include "encoder/image/decode.h"

#include <exception>
#include <new>
#include <opencv2/core.hpp>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "encoder/image/bytes.h"
#include "encoder/image/formats.h"
#include "encoder/image/orientation.h"

namespace deepencoder {
namespace {

struct Format {
  ImageFormat format;
  const char* name;
  absl::StatusOr<StoredSize> (*read_size)(Bytes);
  absl::StatusOr<Decoded> (*decode)(Bytes, const ImageHeader&, const DecodeOptions&);
  // What decoding takes at most: bytes a pixel, the RGB8 result included, and bytes whatever the size.
  size_t bytes_per_pixel;
  size_t fixed_bytes;
  size_t (*table_bytes)(Bytes, const StoredSize&) = nullptr;  // ImageHeader::table_bytes, if any
};

constexpr size_t kMiB = size_t{1} << 20;

// What bytes_per_pixel is made of, besides 3 for the result. Turning takes 6 (two copies of it).
//   JPEG  coefficients of a progressive file: four components of 2 bytes
//   PNG   an RGBA raster to be composited
//   WebP  libwebp's ARGB planes of a lossless file and of its alpha, an RGBA raster
//   TIFF  a raster of up to 4 samples, or libtiff's RGBA; a tile of twice the picture's samples
//   BMP   palette indices of a run-length coded file
//   GIF   palette indices
// fixed_bytes: rows, tables and libraries' states; of TIFF a tile (kMaxSmallTile) and a Zstandard window
// (kMaxZstdWindow) too.
constexpr Format kFormats[] = {
    {ImageFormat::kJpeg, "JPEG", ReadJpegSize, DecodeJpeg, 11, 4 * kMiB},
    {ImageFormat::kPng, "PNG", ReadPngSize, DecodePng, 7, 4 * kMiB},
    {ImageFormat::kWebp, "WebP", ReadWebpSize, DecodeWebp, 16, 4 * kMiB, WebpTableBytes},
    {ImageFormat::kTiff, "TIFF", ReadTiffSize, DecodeTiff, 24, 24 * kMiB, TiffTableBytes},
    {ImageFormat::kBmp, "BMP", ReadBmpSize, DecodeBmp, 6, 4 * kMiB},
    {ImageFormat::kGif, "GIF", ReadGifSize, DecodeGif, 6, 4 * kMiB},
};

const Format& Of(ImageFormat format) { return kFormats[static_cast<size_t>(format)]; }

// By the first bytes alone; a file's name or declared type is never asked.
std::optional<ImageFormat> Sniff(Bytes file) {
  using std::string_view_literals::operator""sv;
  if (StartsWith(file, "\xFF\xD8\xFF"sv)) return ImageFormat::kJpeg;
  if (StartsWith(file, "\x89PNG\r\n\x1A\n"sv)) return ImageFormat::kPng;
  if (StartsWith(file, "RIFF"sv) && StartsWith(Slice(file, 8), "WEBP"sv)) return ImageFormat::kWebp;
  for (const auto magic : {"II*\0"sv, "MM\0*"sv, "II+\0"sv, "MM\0+"sv}) {  // + : BigTIFF
    if (StartsWith(file, magic)) return ImageFormat::kTiff;
  }
  if (StartsWith(file, "BM"sv)) return ImageFormat::kBmp;
  if (StartsWith(file, "GIF87a"sv) || StartsWith(file, "GIF89a"sv)) return ImageFormat::kGif;
  return std::nullopt;
}

absl::Status CheckSize(const Format& format, const StoredSize& size, int64_t max_pixels) {
  const std::string text = absl::StrCat(format.name, " image of ", size.width, " x ", size.height);
  if (size.width < 1 || size.height < 1) {
    return absl::InvalidArgumentError(absl::StrCat(text, " pixels: both sides must be at least 1"));
  }
  if (size.width > kMaxStoredSide || size.height > kMaxStoredSide) {
    return absl::InvalidArgumentError(
        absl::StrCat(text, " pixels: no side may be over ", kMaxStoredSide));
  }
  if (size.width * size.height > max_pixels) {
    return absl::InvalidArgumentError(absl::StrCat(text, " = ", size.width * size.height,
                                                   " pixels is over the limit of ", max_pixels));
  }
  return absl::OkStatus();
}

std::string SizeText(const ImageHeader& header) {
  return absl::StrCat("an image of ", header.width, " x ", header.height, " pixels");
}

absl::Status NoMemory(const ImageHeader& header) {
  return absl::ResourceExhaustedError(absl::StrCat("no memory to decode ", SizeText(header)));
}

// Of a library, by an exception. Its text names versions and paths, which are no client's.
absl::Status Failure(const ImageHeader& header) {
  return absl::InternalError(absl::StrCat("the decoder of ", SizeText(header), " failed"));
}

}  // namespace

std::string_view Name(ImageFormat format) { return Of(format).name; }

absl::StatusOr<ImageHeader> ReadHeader(std::span<const std::byte> file,
                                       const DecodeOptions& options) {
  if (file.empty()) return absl::InvalidArgumentError("the image is empty (0 bytes)");
  if (file.size() > options.max_bytes) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "the image file has ", file.size(), " bytes, over the limit of ", options.max_bytes));
  }
  const std::optional<ImageFormat> known = Sniff(file);
  if (!known) {
    return absl::InvalidArgumentError(
        "unknown image format: the first bytes are none of JPEG, PNG, WebP, TIFF, BMP, GIF");
  }
  const Format& format = Of(*known);
  const absl::StatusOr<StoredSize> size = format.read_size(file);
  if (!size.ok()) return size.status();
  const absl::Status fits = CheckSize(format, *size, options.max_pixels);
  if (!fits.ok()) return fits;
  return ImageHeader{*known, static_cast<int>(size->width), static_cast<int>(size->height),
                     format.table_bytes != nullptr ? format.table_bytes(file, *size) : 0};
}

size_t DecodeBytes(const ImageHeader& header) {
  // Decoders work in blocks of up to 32 pixels a side, and hold rows and tables besides.
  constexpr size_t kBlock = 32, kBytesPerColumn = 1024;
  const size_t width = static_cast<size_t>(header.width) + kBlock;
  const size_t height = static_cast<size_t>(header.height) + kBlock;
  const Format& format = Of(header.format);
  return width * height * format.bytes_per_pixel + width * kBytesPerColumn + format.fixed_bytes +
         header.table_bytes;
}

absl::StatusOr<RgbImage> DecodeImage(std::span<const std::byte> file,
                                     const DecodeOptions& options) {
  const absl::StatusOr<ImageHeader> header = ReadHeader(file, options);
  if (!header.ok()) return header.status();
  try {
    absl::StatusOr<Decoded> decoded = Of(header->format).decode(file, *header, options);
    if (!decoded.ok()) return decoded.status();
    return RgbImage(TurnUpright(std::move(decoded->rgb), decoded->orientation));
  } catch (const std::bad_alloc&) {
    return NoMemory(*header);
  } catch (const cv::Exception& error) {
    if (error.code == cv::Error::StsNoMem) return NoMemory(*header);
    return Failure(*header);
  } catch (const std::exception&) {
    return Failure(*header);
  }
}

}  // namespace deepencoder
