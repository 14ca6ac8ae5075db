// A thousand damaged files of every format: each gives a picture within the limits or a status that says
// why not, and nothing else. Worth most under AddressSanitizer and UndefinedBehaviorSanitizer.
#include <gtest/gtest.h>

#include <random>

#include "encoder/image/decode.h"
#include "tests/encoder/image/test_files.h"

namespace deepencoder {
namespace {

constexpr int kMutants = 1000;  // of each format

// Bit flips, overwritten, repeated, removed and inserted stretches, and cuts, a few at a time.
FileBytes Mutate(FileBytes file, std::mt19937& random) {
  const auto below = [&](size_t n) { return static_cast<size_t>(random() % n); };
  for (size_t edits = 1 + below(4); edits > 0 && !file.empty(); --edits) {
    // Half of them in the first kilobyte, where the headers are.
    const size_t at = below(below(2) == 0 ? std::min<size_t>(file.size(), 1024) : file.size());
    const auto position = file.begin() + static_cast<std::ptrdiff_t>(at);
    const size_t length = std::min(1 + below(16), file.size() - at);
    const auto end = position + static_cast<std::ptrdiff_t>(length);
    switch (below(7)) {
      case 0:
        file[at] ^= static_cast<std::byte>(1 << below(8));
        break;
      case 1:
        std::generate(position, end, [&] { return static_cast<std::byte>(random()); });
        break;
      case 2:
        std::fill(position, end, below(2) == 0 ? std::byte{0} : std::byte{0xFF});
        break;
      case 3:
        file.erase(position, end);
        break;
      case 4: {
        const FileBytes copy(position, end);
        file.insert(position, copy.begin(), copy.end());
        break;
      }
      case 5:
        file[at] = static_cast<std::byte>(below(2) == 0 ? 0x7F : 0x80);
        break;
      default:
        if (below(4) == 0) file.resize(at);
        break;
    }
  }
  return file;
}

class Mutation : public ::testing::TestWithParam<std::vector<std::string>> {};

TEST_P(Mutation, GivesAPictureOrAStatus) {
  std::vector<FileBytes> seeds;
  for (const std::string& name : GetParam()) {
    seeds.push_back(ReadTestFile(std::string(DEEPENCODER_TEST_DATA) + "/" + name));
  }
  std::mt19937 random(20240607);
  int pictures = 0, refusals = 0;
  for (int i = 0; i < kMutants; ++i) {
    DecodeOptions options;
    options.max_pixels = 1'000'000;  // a damaged header may ask for much: fast to refuse
    options.alpha = i % 2 == 0 ? AlphaPolicy::kDrop : AlphaPolicy::kWhite;
    options.gray16 = i % 3 == 0 ? Gray16Policy::kSaturate : Gray16Policy::kHighByte;
    const FileBytes file = Mutate(seeds[static_cast<size_t>(i) % seeds.size()], random);
    const auto image = DecodeImage(file, options);
    if (image.ok()) {
      ++pictures;
      EXPECT_LE(int64_t{image->width()} * image->height(), options.max_pixels);
      EXPECT_EQ(image->bytes(),
                static_cast<size_t>(image->width()) * static_cast<size_t>(image->height()) * 3);
    } else {
      ++refusals;
      EXPECT_EQ(image.status().code(), absl::StatusCode::kInvalidArgument)
          << image.status().ToString();
      EXPECT_FALSE(image.status().message().empty());
    }
  }
  // Both ways were walked.
  EXPECT_GT(pictures, 0);
  EXPECT_GT(refusals, 0);
}

using Names = std::vector<std::string>;
INSTANTIATE_TEST_SUITE_P(
    Formats, Mutation,
    ::testing::Values(
        Names{"images/exif_6.jpg", "images/progressive.jpg", "images/cmyk.jpg", "images/tall.jpg",
              "formats/jpg_rgb_420.jpg", "formats/jpg_gray_progressive.jpg"},
        Names{"images/exif_6.png", "images/rgba16.png", "images/palette_trns.png", "images/la.png",
              "formats/png_gray16_trns_interlaced.png", "formats/png_palette4_interlaced.png"},
        Names{"images/exif_6.webp", "formats/webp_lossless_rgba.webp",
              "formats/webp_lossy_rgba.webp", "formats/webp_animated_alpha.webp",
              "formats/webp_animated_lossy.webp"},
        Names{"images/a.tiff", "formats/tif_tiled_deflate_predictor.tif", "formats/tif_lzw.tif",
              "formats/tif_planar_deflate.tif", "formats/tif_jpeg.tif", "formats/tif_fax4.tif",
              "formats/tif_fax3.tif", "formats/tif_packbits.tif", "formats/tif_bigtiff.tif",
              "formats/tif_palette8.tif", "formats/tif_cmyk16.tif", "formats/tif_zstd.tif"},
        Names{"formats/bmp_rle8.bmp", "formats/bmp_rle4.bmp", "formats/bmp_palette4.bmp",
              "formats/bmp_fields565.bmp", "formats/bmp_os2_palette8.bmp",
              "formats/bmp_v5_fields.bmp"},
        Names{"images/anim.gif", "formats/gif_interlaced.gif",
              "formats/gif_frame_beyond_corner.gif", "formats/gif_frame_inside_transparent.gif"}),
    [](const auto& param_info) {
      const std::string& first = param_info.param.back();
      return first.substr(first.rfind('.') + 1);
    });

}  // namespace
}  // namespace deepencoder
