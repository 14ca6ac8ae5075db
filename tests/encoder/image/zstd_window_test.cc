#include "encoder/image/zstd_window.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "encoder/image/decode.h"
#include "tests/encoder/image/test_files.h"

namespace deepencoder {
namespace {

using std::string_literals::operator""s;

const std::string kMagic = "\x28\xB5\x2F\xFD";
// The last block, raw, of one byte.
const std::string kBlock = "\x09\x00\x00x"s;

uint64_t WindowOf(const std::string& stream) { return LargestZstdWindow(ToBytes(stream)); }

TEST(ZstdWindow, IsReadFromTheDescriptor) {
  EXPECT_EQ(WindowOf(kMagic + "\x00\x00"s + kBlock), 1u << 10);
  EXPECT_EQ(WindowOf(kMagic + "\x00\x68"s + kBlock), 8u << 20);
  EXPECT_EQ(WindowOf(kMagic + "\x00\x69"s + kBlock), 9u << 20);
  EXPECT_EQ(WindowOf(kMagic + "\x00\xFF"s + kBlock), (uint64_t{1} << 41) / 8 * 15);
}

TEST(ZstdWindow, OfASingleSegmentIsItsContent) {
  EXPECT_EQ(WindowOf(kMagic + "\x20\x7F"s + kBlock), 127u);
  EXPECT_EQ(WindowOf(kMagic + "\x60\x00\x01"s + kBlock), 512u);
  EXPECT_EQ(WindowOf(kMagic + "\xA0\x00\x00\x00\x40"s + kBlock), 1u << 30);
  EXPECT_EQ(WindowOf(kMagic + "\xE0\x00\x00\x00\x00\x01\x00\x00\x00"s + kBlock), uint64_t{1} << 32);
}

TEST(ZstdWindow, IsTheLargestOfAllFrames) {
  const std::string small = kMagic + "\x04\x00"s + kBlock + "sums",
                    large = kMagic + "\x00\x80"s + kBlock;
  const std::string skipped = "\x50\x2A\x4D\x18\x03\x00\x00\x00"s + "any";
  EXPECT_EQ(WindowOf(small + large), uint64_t{64} << 20);
  EXPECT_EQ(WindowOf(skipped + small + skipped + large), uint64_t{64} << 20);
  const std::string long_run =
      kMagic + "\x00\x00\xFA\xFF\xFFx\x01\x00\x00"s;  // a byte, 2 MiB of times
  EXPECT_EQ(WindowOf(long_run + large), uint64_t{64} << 20);
}

TEST(ZstdWindow, KnowsNoBoundWhereNoFrameBegins) {
  EXPECT_EQ(WindowOf("no frame"), UINT64_MAX);
  EXPECT_EQ(WindowOf(kMagic), UINT64_MAX);
  EXPECT_EQ(WindowOf("\x27\xB5\x2F\xFD\x00\x00"s), UINT64_MAX);  // version 0.7
  EXPECT_EQ(WindowOf(kMagic + "\x00\x00"s + kBlock + "\x25\xB5\x2F\xFD"s),
            UINT64_MAX);  // 0.5 follows
  EXPECT_EQ(WindowOf(kMagic + "\x00\x00"s + kBlock + "garbage"), 1u << 10);
  EXPECT_EQ(WindowOf(kMagic + "\x00\x00\xFF\xFF"s), 1u << 10);  // ends within a block's header
}

TEST(ZstdWindow, OfATiffFileIsBounded) {
  FileBytes file = ReadTestFile(DEEPENCODER_TEST_DATA "/formats/tif_zstd.tif");
  ASSERT_TRUE(DecodeImage(file, {}).ok());
  const FileBytes magic = ToBytes(kMagic);
  const auto frame = std::search(file.begin(), file.end(), magic.begin(), magic.end());
  ASSERT_LT(frame, file.end() - 6);
  ASSERT_EQ(std::to_integer<int>(frame[4]) & 0x20, 0) << "the file's frame has a window";
  frame[5] = std::byte{0x88};  // 128 MiB, the most that libtiff's decoder takes
  const auto image = DecodeImage(file, {});
  EXPECT_EQ(image.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(image.status().message().find("Zstandard"), std::string::npos) << image.status();
}

}  // namespace
}  // namespace deepencoder
