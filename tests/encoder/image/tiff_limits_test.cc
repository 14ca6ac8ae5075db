// Short files that ask for much work or memory, and sound ones that look like them.
#include "encoder/image/tiff_limits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <tiff.h>

#include <string>

#include "encoder/image/decode.h"
#include "tests/encoder/image/shared_tiff.h"

namespace deepencoder {
namespace {

using ::testing::HasSubstr;
using std::string_literals::operator""s;

void ExpectRefused(const FileBytes& file, const std::string& says) {
  const auto image = DecodeImage(file, {});
  ASSERT_EQ(image.status().code(), absl::StatusCode::kInvalidArgument) << image.status();
  EXPECT_THAT(std::string(image.status().message()), HasSubstr(says));
}

void ExpectRead(const FileBytes& file, uint32_t width, uint32_t height) {
  const auto image = DecodeImage(file, {});
  ASSERT_TRUE(image.ok()) << image.status();
  EXPECT_EQ(image->width(), static_cast<int>(width));
  EXPECT_EQ(image->height(), static_cast<int>(height));
}

FileBytes DeflatedTiles(const SharedTiff& tiff) {
  const size_t samples = tiff.planar == PLANARCONFIG_SEPARATE ? 1 : tiff.samples;
  return EncodeSharedTiff(tiff,
                          DeflatedZeros(size_t{tiff.tile_width} * tiff.tile_height * samples));
}

TEST(TiffLimits, PaddingOfAllTilesIsBounded) {
  // Each tile has its 4 MiB; all of them 24 GiB.
  const FileBytes file = DeflatedTiles({.width = 100'000,
                                        .height = 1,
                                        .tile_width = 16,
                                        .tile_height = 262'144,
                                        .compression = COMPRESSION_ADOBE_DEFLATE});
  EXPECT_LT(file.size(), 60'000u);
  ExpectRefused(file, "6250 tiles of 16 x 262144 pixels: over the limit of 268435456 bytes");
}

TEST(TiffLimits, PaddingOfSoundFilesIsNot) {
  struct Case {
    uint32_t width, height, side;
  };
  for (const auto& [width, height, side] :
       {Case{16, 16, 512}, Case{1, 1, 1024}, Case{100, 5000, 256}, Case{65'000, 1, 512},
        Case{1, 65'000, 512}, Case{1025, 1025, 1024}}) {
    const SharedTiff tiff = {.width = width,
                             .height = height,
                             .tile_width = side,
                             .tile_height = side,
                             .samples = 3,
                             .photometric = PHOTOMETRIC_RGB,
                             .compression = COMPRESSION_ADOBE_DEFLATE};
    ExpectRead(DeflatedTiles(tiff), width, height);
  }
}

TEST(TiffLimits, TilesOfYcbcrAreBoundedToo) {
  SharedTiff tiff = {.width = 8,
                     .height = 8,
                     .tile_width = 4096,
                     .tile_height = 4096,
                     .samples = 3,
                     .photometric = PHOTOMETRIC_YCBCR,
                     .compression = COMPRESSION_ADOBE_DEFLATE};
  ExpectRefused(DeflatedTiles(tiff), "tiles of 4096 x 4096 pixels");
  tiff.tile_width = tiff.tile_height = 1024;
  ExpectRead(DeflatedTiles(tiff), 8, 8);
  tiff.planar = PLANARCONFIG_SEPARATE;
  ExpectRead(DeflatedTiles(tiff), 8, 8);
  tiff.tile_width = 2048;  // 2 MiB a plane, and three of them at once
  ExpectRefused(DeflatedTiles(tiff), "tiles of 2048 x 1024 pixels");
}

TEST(TiffLimits, CoefficientsOfJpegAreBounded) {
  SharedTiff tiff = {.width = 700,
                     .height = 700,
                     .tile_width = 1296,
                     .tile_height = 1296,
                     .samples = 3,
                     .photometric = PHOTOMETRIC_YCBCR,
                     .compression = COMPRESSION_JPEG,
                     .subsampling = 2};
  RgbImage picture = TestPicture(1296, 1296);
  ExpectRead(EncodeSharedTiff(tiff, EncodeJpeg(picture)), 700, 700);
  ExpectRefused(EncodeSharedTiff(tiff, EncodeJpeg(picture, /*progressive=*/true)),
                "progressive JPEG data of 1296 x 1296 pixels: need 15116544 bytes");
  tiff.height = 1;
  tiff.tile_width = tiff.tile_height = 0;
  picture = TestPicture(700, 4000);  // of which a strip has one row
  ExpectRead(EncodeSharedTiff(tiff, EncodeJpeg(picture)), 700, 1);
  ExpectRefused(EncodeSharedTiff(tiff, EncodeJpeg(picture, /*progressive=*/true)),
                "progressive JPEG data of 700 x 4000 pixels: need 16800000 bytes");
  picture = TestPicture(700, 200);
  ExpectRead(EncodeSharedTiff(tiff, EncodeJpeg(picture, /*progressive=*/true)), 700, 1);
}

TEST(TiffLimits, StripsThatShareDataAreBounded) {
  // Eight bytes, and a megabyte behind them that is looked at in vain for each of the strips.
  FileBytes deflate = DeflatedZeros(8);
  FileBytes zstd = ToBytes(
      "\x28\xB5\x2F\xFD\x20\x08\x41\x00\x00"
      "8 bytes."s);
  for (auto& [data, compression] :
       {std::pair{&deflate, COMPRESSION_ADOBE_DEFLATE}, std::pair{&zstd, COMPRESSION_ZSTD}}) {
    const SharedTiff tiff = {
        .width = 8, .height = 1000, .compression = static_cast<uint16_t>(compression)};
    ExpectRead(EncodeSharedTiff(tiff, *data), 8, 1000);
    data->resize(size_t{1} << 20);
    ExpectRefused(EncodeSharedTiff(tiff, *data), "strips or tiles that share data");
  }
}

TEST(TiffLimits, TilesOfOneColourMayBeOne) {
  const SharedTiff tiff = {.width = 1000, .height = 1000, .tile_width = 64, .tile_height = 64};
  ExpectRead(EncodeSharedTiff(tiff, FileBytes(64 * 64)), 1000, 1000);
}

}  // namespace
}  // namespace deepencoder
