#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "encoder/image/decode.h"
#include "encoder/image/formats.h"
#include "tests/encoder/image/test_files.h"

namespace deepencoder {
namespace {

using std::string_literals::operator""s;

using SizeReader = absl::StatusOr<StoredSize> (*)(Bytes);

// "3 x 2", or what is wrong.
std::string SizeOf(SizeReader read, const std::string& text) {
  const FileBytes file = ToBytes(text);
  const auto size = read(file);
  if (!size.ok()) return std::string(size.status().message());
  return std::to_string(size->width) + " x " + std::to_string(size->height);
}

TEST(StoredSize, OfJpegIsInTheFirstFrameHeader) {
  const std::string start = "\xFF\xD8"s, frame = "\xFF\xC2\x00\x11\x08\x00\x02\x00\x03"s;
  EXPECT_EQ(SizeOf(ReadJpegSize, start + frame), "3 x 2");
  // Behind tables, a segment that holds what looks like a header, fill bytes and stray ones.
  const std::string tables = "\xFF\xC4\x00\x03x\xFF\xE1\x00\x0B"s + frame + "stray\xFF\xFF"s;
  EXPECT_EQ(SizeOf(ReadJpegSize, start + tables + frame), "3 x 2");
  for (const std::string& no_frame : {"\xFF\xDA\x00\x08"s, "\xFF\xD9"s}) {
    EXPECT_NE(SizeOf(ReadJpegSize, start + no_frame + frame).find("no frame header"),
              std::string::npos);
  }
  EXPECT_NE(SizeOf(ReadJpegSize, start + "\xFF\xE0\x00\x01"s + frame).find("length"),
            std::string::npos);
  EXPECT_NE(SizeOf(ReadJpegSize, start + frame.substr(0, 8)).find("ends"), std::string::npos);
}

TEST(StoredSize, OfTiffIsInTheFirstDirectory) {
  const std::string little =
      "II*\0\x08\0\0\0"s
      "\x03\0"
      "\x00\x01\x03\0\x01\0\0\0\x03\0\0\0"
      "\x06\x01\x03\0\x01\0\0\0\x02\0\0\0"s
      "\x01\x01\x04\0\x01\0\0\0\x02\0\0\0"s;
  EXPECT_EQ(SizeOf(ReadTiffSize, little), "3 x 2");
  const std::string big =
      "MM\0*\0\0\0\x08"s
      "\0\x02"
      "\x01\x00\0\x01\0\0\0\x01\x03\0\0\0"s
      "\x01\x01\0\x03\0\0\0\x01\0\x02\0\0"s;
  EXPECT_EQ(SizeOf(ReadTiffSize, big), "3 x 2");
  const std::string bigtiff =
      "MM\0+\0\x08\0\0\0\0\0\0\0\0\0\x10"s
      "\0\0\0\0\0\0\0\x02"s
      "\x01\x00\0\x10\0\0\0\0\0\0\0\x01\xFF\xFF\xFF\xFF\0\0\0\0"s
      "\x01\x01\0\x04\0\0\0\0\0\0\0\x01\0\0\0\x02\0\0\0\0"s;
  EXPECT_EQ(SizeOf(ReadTiffSize, bigtiff), std::to_string(INT64_MAX) + " x 2");
  std::string two_values = little;
  two_values[14] = 2;
  for (const std::string& bad :
       {two_values, little.substr(0, 40), "II*\0\xFF\xFF\xFF\xFF"s, "II*\0"s}) {
    EXPECT_EQ(SizeOf(ReadTiffSize, bad).find("broken or truncated TIFF file: no "), 0u);
  }
}

TEST(StoredSize, OfGifCoversScreenAndFirstFrame) {
  const std::string screen = "GIF89a\x05\0\x04\0\x80\0\0"s + std::string(6, 'p');
  const std::string extension =
                        "\x21\xFE\x03"
                        "abc\x02"
                        "de\0"s,
                    frame = "\x2C\x03\0\x01\0\x04\0\x02\0\0"s;
  EXPECT_EQ(SizeOf(ReadGifSize, screen + extension + frame), "7 x 4");
  EXPECT_NE(SizeOf(ReadGifSize, screen + ";" + frame).find("no frame"), std::string::npos);
  EXPECT_NE(SizeOf(ReadGifSize, screen + "x" + frame).find("unknown"), std::string::npos);
  EXPECT_NE(SizeOf(ReadGifSize, screen + "\x2C\0\0\0\0\0\0\x02\0\0"s).find("empty"),
            std::string::npos);
  EXPECT_NE(SizeOf(ReadGifSize, screen + extension.substr(0, 6)).find("ends"), std::string::npos);
}

TEST(StoredSize, OfWebpIsInTheFirstChunk) {
  const std::string riff = "RIFF\0\0\0\0WEBP"s;
  EXPECT_EQ(SizeOf(ReadWebpSize, riff + "VP8 \0\0\0\0tag\x9D\x01\x2A\x03\x40\x02\x80"s), "3 x 2");
  EXPECT_EQ(SizeOf(ReadWebpSize, riff + "VP8L\0\0\0\0/\x02\x40\x00\x10"s), "3 x 2");
  EXPECT_EQ(SizeOf(ReadWebpSize, riff + "VP8X\0\0\0\0flag\x02\0\0\x01\0\0"s), "3 x 2");
  EXPECT_NE(SizeOf(ReadWebpSize, riff + "EXIF\0\0\0\0"s).find("picture"), std::string::npos);
  EXPECT_NE(SizeOf(ReadWebpSize, riff + "VP8L\0\0\0\0/\x02\x40"s).find("ends"), std::string::npos);
}

// A decoder's library must not take the file for a larger picture than the limits were asked about.
TEST(StoredSize, MustBeWhatTheDecoderReads) {
  FileBytes file = EncodeTiff(TestPicture(8, 8));
  const FileBytes other =
      ToBytes("\x00\x01\x03\0\x01\0\0\0\x09\0\0\0"s);  // width 9, where the size is read
  // The directory lies at the end: one more entry in front of it, and its number of entries.
  const size_t at = std::to_integer<size_t>(file[4]) | std::to_integer<size_t>(file[5]) << 8;
  file.insert(file.begin() + static_cast<std::ptrdiff_t>(at + 2), other.begin(), other.end());
  file[at] = std::byte{static_cast<uint8_t>(std::to_integer<int>(file[at]) + 1)};
  const auto header = ReadHeader(file, {});
  ASSERT_TRUE(header.ok()) << header.status();
  EXPECT_EQ(header->width, 9);
  const auto image = DecodeImage(file, {});
  if (image.ok()) {
    EXPECT_EQ(image->width(), 9);
  } else {
    EXPECT_EQ(image.status().code(), absl::StatusCode::kInvalidArgument) << image.status();
  }
}

}  // namespace
}  // namespace deepencoder
