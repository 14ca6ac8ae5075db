// How much of a PNG file's texts is inflated: zlib's entry that the metadata goes through (libpng has
// another) is this program's, and counts.
#include <gtest/gtest.h>
#include <zlib.h>

#include <string>
#include <vector>

#include "encoder/image/decode.h"
#include "tests/encoder/image/test_files.h"

namespace {
int inflations = 0;
}

extern "C" int inflateInit_(z_streamp stream, const char* version, int stream_size) {
  ++inflations;
  return inflateInit2_(stream, MAX_WBITS, version, stream_size);
}

namespace deepencoder {
namespace {

using std::string_literals::operator""s;

std::string Deflated(const std::string& text) {
  uLongf size = compressBound(text.size());
  std::string packed(size, '\0');
  compress(reinterpret_cast<Bytef*>(packed.data()), &size,
           reinterpret_cast<const Bytef*>(text.data()), text.size());
  packed.resize(size);
  return packed;
}

// ImageMagick's block of EXIF in hexadecimal.
std::string RawExif(char orientation) {
  const std::string exif =
      "II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0"s + orientation + "\0\0\0\0\0\0\0"s;
  std::string text = "\nexif\n      26\n";
  for (const char c : exif) {
    text += "0123456789abcdef"[static_cast<uint8_t>(c) >> 4];
    text += "0123456789abcdef"[static_cast<uint8_t>(c) & 15];
  }
  return text;
}

FileBytes CompressedExif(const std::string& text) {
  return PngChunk("zTXt", ToBytes("Raw profile type exif\0\0"s + Deflated(text)));
}

FileBytes CompressedXmp(const std::string& text) {
  return PngChunk("iTXt", ToBytes("XML:com.adobe.xmp\0\x01\0\0\0"s + Deflated(text)));
}

class PngMetadata : public ::testing::Test {
 protected:
  // The file with these chunks, the first of them first.
  static FileBytes With(const std::vector<FileBytes>& chunks) {
    FileBytes all;
    for (const FileBytes& chunk : chunks) all.insert(all.end(), chunk.begin(), chunk.end());
    return WithPngChunk(EncodePng(TestPicture(5, 3)), all);
  }
  static int WidthOf(const FileBytes& file) {
    inflations = 0;
    const auto image = DecodeImage(file, {});
    EXPECT_TRUE(image.ok()) << image.status();
    return image.ok() ? image->width() : 0;
  }
};

TEST_F(PngMetadata, IsReadFromCompressedTexts) {
  EXPECT_EQ(WidthOf(With({CompressedExif(RawExif(6))})), 3);
  EXPECT_EQ(inflations, 1);
  EXPECT_EQ(WidthOf(With({CompressedXmp("<x tiff:Orientation=\"6\"/>")})), 3);
  EXPECT_EQ(inflations, 1);
}

TEST_F(PngMetadata, IsInflatedOnceOfEachKind) {
  // Thousands of texts that inflate to a megabyte each, as much as is looked at.
  const std::string blank(size_t{1} << 20, ' ');
  std::vector<FileBytes> chunks;
  for (int i = 0; i < 1000; ++i) {
    chunks.push_back(CompressedExif(RawExif(1) + (i == 0 ? blank : "")));
    chunks.push_back(CompressedXmp(i == 0 ? blank : "<x tiff:Orientation=\"1\"/>"));
  }
  chunks.push_back(CompressedXmp("<x tiff:Orientation=\"8\"/>"));
  EXPECT_EQ(WidthOf(With(chunks)), 5);  // EXIF before XMP
  EXPECT_LE(inflations, 2);
  chunks.push_back(CompressedExif(RawExif(6)));  // the last says it
  EXPECT_EQ(WidthOf(With(chunks)), 3);
  EXPECT_LE(inflations, 2);
}

TEST_F(PngMetadata, BehindTheFirstMegabyteIsNotLookedAt) {
  const std::string blank(size_t{1} << 20, ' ');
  const std::string key = "Raw profile type exif\0"s;
  const std::string late = "\nexif\n26\n" + blank + RawExif(6).substr(15);
  EXPECT_EQ(WidthOf(With({PngChunk("tEXt", ToBytes(key + late))})), 5);
  EXPECT_EQ(WidthOf(With({CompressedExif(late)})), 5);
}

}  // namespace
}  // namespace deepencoder
