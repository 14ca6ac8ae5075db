#include "encoder/image/tiff_limits.h"

#include <algorithm>
#include <cstdint>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "encoder/image/formats.h"
#include "encoder/image/zstd_window.h"

namespace deepencoder {
namespace {

// What a tile may have decoded: bytes of any, or for each pixel of the picture.
constexpr uint64_t kMaxSmallTile = uint64_t{4} << 20, kMaxTileBytes = 16;
// What all tiles may have decoded: bytes of any, or times the picture's. With two tiles or more in a row
// and in a column they are less than four times the picture. Single rows of tiles, a strip of a scan in
// tiles of 512 x 512 say, can be many times as large as it, but are not large.
constexpr uint64_t kMaxSmallTiles = uint64_t{256} << 20, kMaxPadding = 4;
// What all strips or tiles may read: bytes of any, times the file's, or as many as they have decoded, since
// tiles of one colour may be one tile, stored once.
constexpr uint64_t kMaxSmallReads = uint64_t{16} << 20, kMaxReads = 2;
// What libzstd's levels up to 19 use, and RFC 8878 asks decoders to support.
constexpr uint64_t kMaxZstdWindow = uint64_t{8} << 20;

struct Shape {
  bool tiled, planar;
  uint32_t width = 0, height = 0;
  uint32_t strips;  // or tiles, of all planes
  uint16_t samples = 1, bits = 1;
  uint64_t bytes() const { return uint64_t{width} * height * samples * bits / 8; }
};

uint64_t MostOfTile(const Shape& shape) { return kMaxTileBytes * shape.width * shape.height; }

Shape ShapeOf(TIFF* tiff) {
  Shape shape{};
  TIFFGetField(tiff, TIFFTAG_IMAGEWIDTH, &shape.width);
  TIFFGetField(tiff, TIFFTAG_IMAGELENGTH, &shape.height);
  TIFFGetFieldDefaulted(tiff, TIFFTAG_SAMPLESPERPIXEL, &shape.samples);
  TIFFGetFieldDefaulted(tiff, TIFFTAG_BITSPERSAMPLE, &shape.bits);
  uint16_t planar = PLANARCONFIG_CONTIG;
  TIFFGetFieldDefaulted(tiff, TIFFTAG_PLANARCONFIG, &planar);
  shape.planar = planar == PLANARCONFIG_SEPARATE;
  shape.tiled = TIFFIsTiled(tiff) != 0;
  shape.strips = shape.tiled ? TIFFNumberOfTiles(tiff) : TIFFNumberOfStrips(tiff);
  return shape;
}

std::optional<std::string> TileExcess(TIFF* tiff, const Shape& shape, bool planes_together) {
  uint32_t width = 0, height = 0;
  TIFFGetField(tiff, TIFFTAG_TILEWIDTH, &width);
  TIFFGetField(tiff, TIFFTAG_TILELENGTH, &height);
  const uint64_t tile = TIFFTileSize64(tiff);  // of a plane; 0: libtiff takes none as large
  const uint64_t most = std::max(kMaxSmallTile, MostOfTile(shape));
  const uint64_t together = shape.planar && planes_together ? shape.samples : 1;
  if (tile == 0 || tile > most / together || uint64_t{width} * height > UINT32_MAX) {
    return absl::StrCat("tiles of ", width, " x ", height, " pixels");
  }
  const uint64_t most_of_all = std::max(kMaxSmallTiles, kMaxPadding * shape.bytes());
  if (shape.strips == 0 || shape.strips > most_of_all / tile) {
    return absl::StrCat(shape.strips, " tiles of ", width, " x ", height,
                        " pixels: over the limit of ", most_of_all, " bytes for a picture of ",
                        shape.width, " x ", shape.height);
  }
  return std::nullopt;
}

// Data of a strip or tile, as much of it as lies in the file.
Bytes DataOf(TIFF* tiff, Bytes file, uint32_t strip) {
  return Slice(file, TIFFGetStrileOffset(tiff, strip), TIFFGetStrileByteCount(tiff, strip));
}

std::optional<std::string> SharingExcess(TIFF* tiff, Bytes file, const Shape& shape) {
  const uint64_t decoded =
      shape.tiled ? shape.strips * TIFFTileSize64(tiff) : shape.bytes();  // bounded by now
  const uint64_t most = std::max({kMaxSmallReads, kMaxReads * file.size(), decoded});
  uint64_t read = 0;
  for (uint32_t i = 0; i < shape.strips && read <= most; ++i) {
    read += DataOf(tiff, file, i).size();
  }
  if (read <= most) return std::nullopt;
  return absl::StrCat("strips or tiles that share data: over the limit of ", most,
                      " bytes read of a file of ", file.size());
}

// Whether libjpeg has to hold all of the picture's coefficients. Neither marker can occur in those themselves.
bool HasManyScans(Bytes jpeg) {
  constexpr std::string_view kProgressive = "\xFF\xC2", kArithmetic = "\xFF\xCA",
                             kScan = "\xFF\xDA";
  const std::string_view text = AsText(jpeg);
  if (text.find(kProgressive) != text.npos || text.find(kArithmetic) != text.npos) return true;
  const size_t scan = text.find(kScan);
  return scan != text.npos && text.find(kScan, scan + 1) != text.npos;
}

// Of a strip the JPEG picture may be higher than the strip.
std::optional<std::string> JpegExcess(TIFF* tiff, Bytes file, const Shape& shape) {
  constexpr uint64_t kCoefficient = 2;  // bytes of one, of which there are as many as samples
  const uint64_t most = std::max((1 + kCoefficient) * kMaxSmallTile, MostOfTile(shape));
  const uint64_t tile = shape.tiled ? TIFFTileSize64(tiff) : 0;
  const uint64_t samples = shape.planar ? 1 : shape.samples;
  for (uint32_t i = 0; i < shape.strips; ++i) {
    const Bytes data = DataOf(tiff, file, i);
    const auto size = ReadJpegSize(data);
    if (!size.ok()) continue;  // libjpeg will say so
    const uint64_t held =
        tile + static_cast<uint64_t>(size->width * size->height) * samples * kCoefficient;
    if (held > most && HasManyScans(data)) {
      return absl::StrCat("progressive JPEG data of ", size->width, " x ", size->height,
                          " pixels: need ", held, " bytes, over the limit of ", most);
    }
  }
  return std::nullopt;
}

// libtiff lets a Zstandard stream say how much memory it needs, up to 128 MiB, for any picture.
std::optional<std::string> WindowExcess(TIFF* tiff, Bytes file, const Shape& shape) {
  for (uint32_t i = 0; i < shape.strips; ++i) {
    const Bytes data = DataOf(tiff, file, i);
    if (!data.empty() && LargestZstdWindow(data) > kMaxZstdWindow) {
      return absl::StrCat("Zstandard data that need more memory than ", kMaxZstdWindow,
                          " bytes, or of no known version");
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::string> TiffExcess(TIFF* tiff, Bytes file, bool planes_together) {
  const Shape shape = ShapeOf(tiff);
  if (shape.tiled) {
    if (auto excess = TileExcess(tiff, shape, planes_together)) return excess;
  }
  if (auto excess = SharingExcess(tiff, file, shape)) return excess;
  uint16_t compression = COMPRESSION_NONE;
  TIFFGetFieldDefaulted(tiff, TIFFTAG_COMPRESSION, &compression);
  if (compression == COMPRESSION_ZSTD) return WindowExcess(tiff, file, shape);
  if (compression == COMPRESSION_JPEG) return JpegExcess(tiff, file, shape);
  return std::nullopt;
}

}  // namespace deepencoder
