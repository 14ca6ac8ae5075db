#include "encoder/image/decode.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <iostream>
#include <random>
#include <sstream>
#include <thread>

#include "tests/encoder/image/shared_tiff.h"
#include "tests/encoder/image/test_files.h"
#include "tests/encoder/image/test_sha256.h"
#include "tests/encoder/image/webp_groups.h"

namespace deepencoder {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using std::string_literals::operator""s;

std::string Message(const absl::Status& status) { return std::string(status.message()); }

void ExpectInvalid(const FileBytes& file, const std::string& says,
                   const DecodeOptions& options = {}) {
  const auto image = DecodeImage(file, options);
  ASSERT_EQ(image.status().code(), absl::StatusCode::kInvalidArgument) << image.status().ToString();
  EXPECT_THAT(Message(image.status()), HasSubstr(says));
}

cv::Vec3b PixelAt(const RgbImage& image, int x, int y) { return image.mat().at<cv::Vec3b>(y, x); }

// ---------------------------------------------------------------- memory

// All black, of 412 MiB once decoded.
FileBytes LargeBmp() {
  const std::string file_header = "BM\x3C\0\0\0\0\0\0\0\x3A\0\0\0"s;
  const std::string size = "\xE0\x2E\0\0\xE0\x2E\0\0"s;  // 12,000 x 12,000
  const std::string rle8 = "\x01\0\x08\0\x01\0\0\0"s;
  const std::string one_colour = "\x02\0\0\0"s + std::string(8, '\0') + "\x01\0\0\0\0\0\0\0"s;
  return ToBytes(file_header + "\x28\0\0\0"s + size + rle8 + one_colour + std::string(4, '\0') +
                 "\0\x01"s);
}

TEST(DecodeImage, LackOfMemoryIsSaidInPlainWords) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer has its own heap";
#else
  const FileBytes file = LargeBmp();
  ASSERT_TRUE(DecodeImage(file, {}).ok()) << DecodeImage(file, {}).status();
  const auto decode = [&file] {
    long pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    const rlim_t most = static_cast<rlim_t>(pages * sysconf(_SC_PAGESIZE)) + (rlim_t{64} << 20);
    const rlimit limit = {most, most};
    setrlimit(RLIMIT_AS, &limit);
    std::cerr << DecodeImage(file, {}).status().ToString();
    std::exit(EXIT_SUCCESS);
  };
  EXPECT_EXIT(decode(), testing::ExitedWithCode(EXIT_SUCCESS),
              testing::Eq("RESOURCE_EXHAUSTED: no memory to decode an image of 12000 x 12000 "
                          "pixels"));
#endif
}

// ---------------------------------------------------------------- kinds of files

TEST(DecodeImage, EqualsPillowOnEveryKindOfFile) {
  const std::string folder = std::string(DEEPENCODER_TEST_DATA) + "/formats/";
  const FileBytes list = ReadTestFile(folder + "pillow.txt");
  std::istringstream lines(std::string(reinterpret_cast<const char*>(list.data()), list.size()));
  std::string name, sha256;
  int width = 0, height = 0, count = 0;
  DecodeOptions options;
  options.gray16 = Gray16Policy::kSaturate;
  while (lines >> name >> width >> height >> sha256) {
    ++count;
    const auto image = DecodeImage(ReadTestFile(folder + name), options);
    ASSERT_TRUE(image.ok()) << name << ": " << image.status().ToString();
    EXPECT_EQ(image->width(), width) << name;
    EXPECT_EQ(image->height(), height) << name;
    EXPECT_EQ(Sha256Hex({image->data(), image->bytes()}), sha256) << name;
  }
  EXPECT_EQ(count, 154);
}

TEST(DecodeImage, RefusesTiffColoursThatCannotBeRead) {
  SharedTiff planes = {.width = 16,
                       .height = 16,
                       .tile_width = 16,
                       .tile_height = 16,
                       .samples = 3,
                       .photometric = 6,  // YCbCr
                       .compression = 7,  // JPEG
                       .planar = 2};
  ExpectInvalid(EncodeSharedTiff(planes, EncodeJpeg(TestPicture(16, 16))), "separate planes");
  for (const uint16_t grey : {uint16_t{0}, uint16_t{1}}) {
    const SharedTiff rgb = {.width = 8, .height = 4, .samples = 3, .photometric = grey};
    ExpectInvalid(EncodeSharedTiff(rgb, FileBytes(24)), "3 samples a pixel in photometric");
  }
}

TEST(DecodeImage, GoesByContentNotByName) {
  // The same bytes whatever they are called: nothing but the bytes is handed over. Each kind is told.
  const std::pair<const char*, ImageFormat> kinds[] = {
      {"wide.jpg", ImageFormat::kJpeg},   {"palette.png", ImageFormat::kPng},
      {"lossy.webp", ImageFormat::kWebp}, {"a.tiff", ImageFormat::kTiff},
      {"a.bmp", ImageFormat::kBmp},       {"anim.gif", ImageFormat::kGif}};
  for (const auto& [name, format] : kinds) {
    const auto header = ReadHeader(ReadTestImage(name), {});
    ASSERT_TRUE(header.ok()) << name;
    EXPECT_EQ(header->format, format) << name;
  }
  const auto header = ReadHeader(ReadTestImage("a.bmp"), {});
  EXPECT_EQ(header->width, 120);
  EXPECT_EQ(header->height, 90);
}

TEST(DecodeImage, ReadsGray16ByPolicy) {
  const FileBytes file = ReadTestImage("gray16.png");
  DecodeOptions saturate;
  saturate.gray16 = Gray16Policy::kSaturate;
  const auto high = DecodeImage(file, {}), low = DecodeImage(file, saturate);
  ASSERT_TRUE(high.ok() && low.ok());
  size_t differing = 0;
  for (size_t i = 0; i < high->bytes(); ++i) {
    // v >> 8 > 0 means v > 255; otherwise min(v, 255) is the low byte.
    if (high->data()[i] > 0) {
      EXPECT_EQ(low->data()[i], 255);
    }
    differing += high->data()[i] != low->data()[i] ? 1 : 0;
  }
  EXPECT_GT(differing, 0u);
}

TEST(DecodeImage, CompositesOnWhiteIfAsked) {
  DecodeOptions white;
  white.alpha = AlphaPolicy::kWhite;
  for (const std::string name :
       {"images/rgba.png", "images/la.png", "images/rgba16.png", "images/palette_trns.png",
        "formats/png_gray8_trns.png", "formats/webp_lossy_rgba.webp",
        "formats/tif_unassociated_alpha.tif"}) {
    const FileBytes file = ReadTestFile(std::string(DEEPENCODER_TEST_DATA) + "/" + name);
    const auto dropped = DecodeImage(file, {});
    const auto composited = DecodeImage(file, white);
    ASSERT_TRUE(dropped.ok() && composited.ok()) << name;
    size_t differing = 0;
    for (size_t i = 0; i < dropped->bytes(); ++i) {
      // Towards white, never away from it.
      ASSERT_GE(composited->data()[i], dropped->data()[i]) << name;
      differing += composited->data()[i] != dropped->data()[i] ? 1 : 0;
    }
    EXPECT_GT(differing, 0u) << name;
  }
  for (const std::string name : {"small_page.png", "wide.jpg", "lossy.webp", "a.bmp", "a.tiff"}) {
    const auto dropped = DecodeImage(ReadTestImage(name), {});
    const auto composited = DecodeImage(ReadTestImage(name), white);
    ASSERT_TRUE(dropped.ok() && composited.ok()) << name;
    EXPECT_EQ(cv::norm(dropped->mat(), composited->mat(), cv::NORM_INF), 0) << name;
  }
}

// A header of 56 bytes has a mask for alpha; one of 52 has none, and the fourth byte is padding.
TEST(DecodeImage, LaysTheColoursOfABmpOnWhiteByItsAlphaMask) {
  const auto bmp = [](char header) {
    const std::string masks = "\0\0\xFF\0\0\xFF\0\0\xFF\0\0\0"s;
    std::string info = header + "\0\0\0\x01\0\0\0\x01\0\0\0\x01\0\x20\0\x03\0\0\0"s +
                       std::string(20, '\0') + masks + "\0\0\0\xFF"s;
    info.resize(static_cast<size_t>(header));
    const auto at = static_cast<char>(14 + header);
    return ToBytes("BM\0\0\0\0\0\0\0\0"s + at + "\0\0\0"s + info +
                   "\x0A\x14\x1E\x80"s);  // B, G, R, A
  };
  DecodeOptions white;
  white.alpha = AlphaPolicy::kWhite;
  const cv::Vec3b stored(30, 20, 10);
  for (const auto& [header, options, colour] :
       {std::tuple{56, white, cv::Vec3b(142, 137, 132)}, std::tuple{56, DecodeOptions(), stored},
        std::tuple{52, white, stored}}) {
    const auto image = DecodeImage(bmp(static_cast<char>(header)), options);
    ASSERT_TRUE(image.ok()) << image.status();
    EXPECT_EQ(PixelAt(*image, 0, 0), colour) << header;
  }
}

TEST(DecodeImage, MakesTheTransparentIndexOfAGifWhite) {
  const std::string path =
      std::string(DEEPENCODER_TEST_DATA) + "/formats/gif_frame_inside_transparent.gif";
  DecodeOptions white;
  white.alpha = AlphaPolicy::kWhite;
  const auto dropped = DecodeImage(ReadTestFile(path), {});
  const auto composited = DecodeImage(ReadTestFile(path), white);
  ASSERT_TRUE(dropped.ok() && composited.ok());
  // The corner lies outside the frame, where all is transparent.
  EXPECT_EQ(PixelAt(*composited, 0, 0), cv::Vec3b::all(255));
  EXPECT_NE(PixelAt(*dropped, 0, 0), cv::Vec3b::all(255));
}

// ---------------------------------------------------------------- orientation

// An EXIF block, little-endian, whose only entry says `orientation`.
std::string Exif(char orientation) {
  return "II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0"s + orientation + "\0\0\0\0\0\0\0"s;
}

TEST(DecodeImage, TurnsPngsByEveryPlaceOfTheirOrientation) {
  const RgbImage upright = TestPicture(5, 3);
  const FileBytes png = EncodePng(upright);
  const std::string xmp = "XML:com.adobe.xmp\0\0\0\0\0<x tiff:Orientation=\"6\"/>"s;
  std::string hex;
  for (const char c : "Exif\0\0"s + Exif(6)) {
    hex += "0123456789abcdef"[static_cast<uint8_t>(c) >> 4];
    hex += "0123456789abcdef"[static_cast<uint8_t>(c) & 15];
  }
  const std::string raw = "Raw profile type exif\0\nexif\n      32\n"s + hex + "\n";
  for (const FileBytes& chunk : {PngChunk("eXIf", ToBytes(Exif(6))), PngChunk("iTXt", ToBytes(xmp)),
                                 PngChunk("tEXt", ToBytes(raw))}) {
    const auto image = DecodeImage(WithPngChunk(png, chunk), {});
    ASSERT_TRUE(image.ok()) << image.status().ToString();
    ASSERT_EQ(image->width(), 3);
    ASSERT_EQ(image->height(), 5);
    EXPECT_EQ(PixelAt(*image, 2, 0), PixelAt(upright, 0, 0));  // clockwise
  }
  // EXIF before XMP, whatever their order; and a broken block is no block.
  const FileBytes exif = PngChunk("eXIf", ToBytes(Exif(1)));
  auto both =
      DecodeImage(WithPngChunk(WithPngChunk(png, exif), PngChunk("iTXt", ToBytes(xmp))), {});
  ASSERT_TRUE(both.ok());
  EXPECT_EQ(both->width(), 5);
  const auto broken =
      DecodeImage(WithPngChunk(png, PngChunk("eXIf", ToBytes("II*\0garbage"s))), {});
  ASSERT_TRUE(broken.ok());
  EXPECT_EQ(broken->width(), 5);
}

TEST(DecodeImage, TurnsJpegsByXmp) {
  FileBytes jpeg = EncodeJpeg(TestPicture(40, 24));
  const std::string xmp = "http://ns.adobe.com/xap/1.0/\0<x tiff:Orientation=\"8\"/>"s;
  std::string segment = "\xFF\xE1\0"s;
  segment += static_cast<char>(xmp.size() + 2);
  segment += xmp;
  const FileBytes bytes = ToBytes(segment);
  jpeg.insert(jpeg.begin() + 2, bytes.begin(), bytes.end());
  const auto image = DecodeImage(jpeg, {});
  ASSERT_TRUE(image.ok()) << image.status().ToString();
  EXPECT_EQ(image->width(), 24);
  EXPECT_EQ(image->height(), 40);
}

// ---------------------------------------------------------------- refusals

TEST(DecodeImage, RefusesWhatIsNoImage) {
  ExpectInvalid({}, "empty");
  ExpectInvalid(ToBytes("GIF"s), "none of JPEG, PNG, WebP, TIFF, BMP, GIF");
  ExpectInvalid(ToBytes("<svg xmlns='http://www.w3.org/2000/svg'/>"s), "unknown image format");
  ExpectInvalid(ToBytes("%PDF-1.7"s), "unknown image format");
  std::mt19937 random(3);
  for (int i = 0; i < 200; ++i) {
    std::vector<uint8_t> noise(random() % 5000);
    for (uint8_t& byte : noise) byte = static_cast<uint8_t>(random());
    EXPECT_EQ(DecodeImage(ToBytes(noise), {}).status().code(), absl::StatusCode::kInvalidArgument);
  }
}

TEST(DecodeImage, RefusesRandomBytesAfterEveryMagicNumber) {
  std::mt19937 random(4);
  for (const std::string& magic : {"\xFF\xD8\xFF"s, "\x89PNG\r\n\x1A\n"s, "RIFF\x40\0\0\0WEBPVP8 "s,
                                   "II*\0"s, "MM\0*"s, "BM"s, "GIF89a"s, "II+\0"s}) {
    ExpectInvalid(ToBytes(magic), "");
    for (int i = 0; i < 50; ++i) {
      std::string file = magic;
      for (uint32_t n = random() % 3000; n > 0; --n) file += static_cast<char>(random());
      const auto image = DecodeImage(ToBytes(file), {});
      EXPECT_EQ(image.status().code(), absl::StatusCode::kInvalidArgument) << magic;
    }
  }
}

TEST(DecodeImage, RefusesEveryTruncation) {
  for (const std::string name :
       {"exif_6.jpg", "progressive.jpg", "cmyk.jpg", "exif_6.png", "rgba16.png", "gray2bit.png",
        "lossy.webp", "lossless.webp", "exif_6.webp", "a.tiff", "a.bmp"}) {
    const FileBytes whole = ReadTestImage(name);
    ASSERT_TRUE(DecodeImage(whole, {}).ok());
    // Every length near both ends, every hundredth or so in between.
    const size_t step = whole.size() / 100 + 1;
    for (size_t size = 0; size < whole.size();
         size += size < 64 || size + 64 > whole.size() ? 1 : step) {
      const FileBytes cut(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size));
      const auto image = DecodeImage(cut, {});
      EXPECT_EQ(image.status().code(), absl::StatusCode::kInvalidArgument)
          << name << " cut to " << size << " of " << whole.size();
      EXPECT_FALSE(Message(image.status()).empty());
    }
  }
}

TEST(DecodeImage, RefusesATruncatedFirstFrame) {
  // Frames behind the first are not read, so the file may end after it.
  const FileBytes whole = ReadTestImage("anim.gif");
  int refused = 0;
  for (size_t size = 0; size < whole.size(); size += 16) {
    const FileBytes cut(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size));
    const auto image = DecodeImage(cut, {});
    if (image.ok()) break;
    EXPECT_EQ(image.status().code(), absl::StatusCode::kInvalidArgument);
    ++refused;
  }
  EXPECT_GT(refused, 10);
}

TEST(DecodeImage, RefusesATruncatedTiffStrip) {
  FileBytes file = EncodeTiff(TestPicture(50, 40));  // the directory comes last
  ASSERT_TRUE(DecodeImage(file, {}).ok());
  std::fill(file.begin() + 8, file.begin() + 200, std::byte{0});  // of the first strip
  ExpectInvalid(file, "TIFF");
}

TEST(DecodeImage, SaysWhatIsWrong) {
  FileBytes png = ReadTestImage("exif_6.png");
  png[png.size() / 2] ^= std::byte{0x10};
  ExpectInvalid(png, "broken or truncated PNG file");
  FileBytes jpeg = ReadTestImage("wide.jpg");
  jpeg.resize(jpeg.size() / 2);
  ExpectInvalid(jpeg, "broken or truncated JPEG file");
  FileBytes bmp = ReadTestImage("a.bmp");
  bmp[28] = std::byte{5};
  ExpectInvalid(bmp, "5 bits a pixel");
}

// ---------------------------------------------------------------- limits

TEST(DecodeImage, HoldsItsLimits) {
  const FileBytes file = ReadTestImage("a.bmp");  // 120 x 90
  DecodeOptions options;
  options.max_bytes = file.size();
  options.max_pixels = 120 * 90;
  EXPECT_TRUE(DecodeImage(file, options).ok());
  --options.max_pixels;
  ExpectInvalid(file, "10800 pixels is over the limit of 10799", options);
  options.max_pixels = 120 * 90;
  --options.max_bytes;
  const auto image = DecodeImage(file, options);
  EXPECT_EQ(image.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(Message(image.status()), AllOf(HasSubstr(std::to_string(file.size())),
                                             HasSubstr(std::to_string(file.size() - 1))));
}

TEST(DecodeImage, RefusesAHugeHeaderBeforeAllocating) {
  ExpectInvalid(PngHeaderOnly(30000, 30000), "30000 x 30000 = 900000000 pixels is over the limit");
  ExpectInvalid(PngHeaderOnly(2'000'000, 1), "no side may be over 1000000");
  ExpectInvalid(PngHeaderOnly(0x7FFFFFFF, 0x7FFFFFFF), "no side may be over");
  ExpectInvalid(PngHeaderOnly(0, 5), "at least 1");
  ExpectInvalid(PngHeaderOnly(100, 100), "broken or truncated PNG file");  // no pixels at all
}

TEST(DecodeImage, ReadsExtremeShapes) {
  for (const auto& [width, height] :
       {std::pair{1, 1}, std::pair{65000, 1}, std::pair{1, 65000}, std::pair{17, 3}}) {
    const RgbImage picture = TestPicture(width, height);
    for (const FileBytes& file : {EncodePng(picture), EncodeTiff(picture)}) {
      const auto image = DecodeImage(file, {});
      ASSERT_TRUE(image.ok()) << image.status().ToString();
      EXPECT_EQ(image->width(), width);
      EXPECT_EQ(image->height(), height);
      EXPECT_EQ(cv::norm(image->mat(), picture.mat(), cv::NORM_INF), 0);
    }
    const auto jpeg = DecodeImage(EncodeJpeg(picture), {});
    ASSERT_TRUE(jpeg.ok()) << jpeg.status().ToString();
    EXPECT_EQ(jpeg->width(), width);
    EXPECT_EQ(jpeg->height(), height);
  }
}

TEST(DecodeBytes, CoversThePixels) {
  for (const auto format : {ImageFormat::kJpeg, ImageFormat::kPng, ImageFormat::kWebp,
                            ImageFormat::kTiff, ImageFormat::kBmp, ImageFormat::kGif}) {
    EXPECT_GE(DecodeBytes({format, 1000, 2000}), size_t{1000} * 2000 * 6) << Name(format);
    EXPECT_GT(DecodeBytes({format, 1, 1}), 0u);
  }
}

TEST(DecodeBytes, CountsWebpTables) {
  const auto tables = [](const FileBytes& file) {
    const auto header = ReadHeader(file, {});
    EXPECT_TRUE(header.ok()) << header.status();
    return header->table_bytes;
  };
  constexpr size_t kGroup = 20'584;  // libwebp's, with the largest color cache
  EXPECT_EQ(tables(ReadTestImage("lossy.webp")), 0u);
  EXPECT_GE(tables(ReadTestImage("lossless.webp")), 1000 * kGroup);
  EXPECT_GT(tables(ReadTestImage("../formats/webp_lossy_rgba.webp")), 0u);
  EXPECT_GE(tables(WebpOfGroups(2048)), 2048 * kGroup);
  EXPECT_EQ(tables(WebpOfGroups(65536)), kMaxWebpTableBytes);
  EXPECT_GE(kMaxWebpTableBytes, 2600 * kGroup);
  for (const int groups : {256, 2048}) {
    const auto image = DecodeImage(WebpOfGroups(groups), {});
    ASSERT_TRUE(image.ok()) << image.status();
    EXPECT_EQ(cv::norm(image->mat(), cv::NORM_INF), 0);
  }
}

TEST(DecodeImage, WorksOnManyThreads) {
  // A broken file beside a sound one: messages and jumps of one call must not reach another.
  const FileBytes sound = ReadTestImage("progressive.jpg"), tiff = ReadTestImage("a.tiff");
  FileBytes broken = sound, broken_tiff = tiff;
  broken.resize(broken.size() / 2);
  broken_tiff.resize(broken_tiff.size() / 2);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 30; ++i) {
        EXPECT_TRUE(DecodeImage(sound, {}).ok());
        EXPECT_FALSE(DecodeImage(broken, {}).ok());
        EXPECT_TRUE(DecodeImage(tiff, {}).ok());
        EXPECT_FALSE(DecodeImage(broken_tiff, {}).ok());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace deepencoder
