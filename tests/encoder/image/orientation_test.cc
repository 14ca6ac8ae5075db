#include "encoder/image/orientation.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace deepencoder {
namespace {

// An EXIF block of one entry, written field by field.
class ExifBuilder {
 public:
  explicit ExifBuilder(bool big) : big_(big) {
    text_ = big ? std::string("MM\0*", 4) : std::string("II*\0", 4);
    Put(8, 4);
  }
  ExifBuilder& Put(uint32_t value, int size) {
    for (int i = 0; i < size; ++i) {
      const int byte = big_ ? size - 1 - i : i;
      text_ += static_cast<char>(value >> (8 * byte) & 0xFF);
    }
    return *this;
  }
  ExifBuilder& Entry(uint32_t tag, uint32_t type, uint32_t count, uint32_t value, int value_size) {
    Put(tag, 2).Put(type, 2).Put(count, 4).Put(value, value_size);
    return Put(0, 4 - value_size);
  }
  const std::string& text() const { return text_; }

 private:
  bool big_;
  std::string text_;
};

Bytes AsBytes(const std::string& text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

std::string OneEntry(bool big, uint32_t type, uint32_t count, uint32_t value, int value_size) {
  return ExifBuilder(big).Put(1, 2).Entry(0x0112, type, count, value, value_size).Put(0, 4).text();
}

TEST(ExifOrientation, ReadsBothByteOrdersAndAllIntegerTypes) {
  for (const bool big : {false, true}) {
    EXPECT_EQ(ExifOrientation(AsBytes(OneEntry(big, 3, 1, 6, 2))), 6);   // SHORT, as it should be
    EXPECT_EQ(ExifOrientation(AsBytes(OneEntry(big, 4, 1, 7, 4))), 7);   // LONG
    EXPECT_EQ(ExifOrientation(AsBytes(OneEntry(big, 6, 1, 5, 1))), 5);   // SBYTE
    EXPECT_EQ(ExifOrientation(AsBytes(OneEntry(big, 13, 1, 7, 4))), 7);  // IFD
    EXPECT_EQ(ExifOrientation(AsBytes(OneEntry(big, 3, 2, 8, 2))), 8);   // the first of two
    EXPECT_EQ(ExifOrientation(AsBytes(OneEntry(big, 3, 1, 9, 2))), 9);  // left to ChooseOrientation
  }
}

// They are bytes to Pillow, not numbers, and as the tag is there XMP's is not asked for either.
TEST(ExifOrientation, OfBytesOrTextIsNone) {
  for (const uint32_t type : {1u, 2u, 7u}) {
    const auto exif = ExifOrientation(AsBytes(OneEntry(false, type, 1, 6, 1)));
    EXPECT_EQ(exif, 0) << type;
    EXPECT_EQ(ChooseOrientation(exif, 6), kUpright);
  }
}

TEST(ExifOrientation, TakesThePrefixOfJpegFiles) {
  const std::string exif = std::string("Exif\0\0", 6) + OneEntry(true, 3, 1, 3, 2);
  EXPECT_EQ(ExifOrientation(AsBytes(exif)), 3);
}

TEST(ExifOrientation, FollowsAnOffsetForLongValues) {
  ExifBuilder exif(false);
  exif.Put(1, 2).Entry(0x0112, 3, 3, 26, 4).Put(0, 4).Put(4, 2).Put(1, 2).Put(1, 2);
  EXPECT_EQ(ExifOrientation(AsBytes(exif.text())), 4);
}

TEST(ExifOrientation, SkipsOtherTags) {
  ExifBuilder exif(true);
  exif.Put(2, 2).Entry(0x010F, 2, 4, 0x41424300, 4).Entry(0x0112, 3, 1, 8, 2).Put(0, 4);
  EXPECT_EQ(ExifOrientation(AsBytes(exif.text())), 8);
}

TEST(ExifOrientation, IgnoresBrokenBlocks) {
  EXPECT_EQ(ExifOrientation({}), std::nullopt);
  EXPECT_EQ(ExifOrientation(AsBytes("II")), std::nullopt);
  EXPECT_EQ(ExifOrientation(AsBytes(std::string(64, 'x'))), std::nullopt);
  EXPECT_EQ(ExifOrientation(AsBytes(OneEntry(false, 5, 1, 6, 2))), std::nullopt);  // RATIONAL
  EXPECT_EQ(ExifOrientation(AsBytes(OneEntry(false, 3, 0, 6, 2))), std::nullopt);  // no value
  EXPECT_EQ(ExifOrientation(AsBytes(OneEntry(false, 3, 0xFFFFFFFF, 0xFFFFFFFF, 4))), std::nullopt);
  ExifBuilder many(false);  // says 65,535 entries, has none
  EXPECT_EQ(ExifOrientation(AsBytes(many.Put(0xFFFF, 2).text())), std::nullopt);
  std::string far = OneEntry(false, 3, 1, 6, 2);  // the directory past the end
  far[4] = far[5] = far[6] = far[7] = '\xFF';
  EXPECT_EQ(ExifOrientation(AsBytes(far)), std::nullopt);
}

TEST(ExifOrientation, HoldsEveryTruncation) {
  const std::string whole = OneEntry(true, 3, 1, 6, 2);
  const size_t needed = 8 + 2 + 10;  // header, count, entry up to its value
  for (size_t size = 0; size <= whole.size(); ++size) {
    const std::vector<char> exact(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size));
    const Bytes bytes(reinterpret_cast<const std::byte*>(exact.data()), exact.size());
    EXPECT_EQ(ExifOrientation(bytes), size < needed ? std::nullopt : std::optional<int>(6));
  }
}

TEST(XmpOrientation, ReadsAttributesAndElements) {
  EXPECT_EQ(XmpOrientation("<rdf:Description tiff:Orientation=\"6\" x=\"1\"/>"), 6);
  EXPECT_EQ(XmpOrientation("<tiff:Orientation>3</tiff:Orientation>"), 3);
  EXPECT_EQ(XmpOrientation("tiff:Orientation tiff:Orientation=\"8\""), 8);
  EXPECT_EQ(XmpOrientation("tiff:Orientation=\""), std::nullopt);
  EXPECT_EQ(XmpOrientation("tiff:Orientation>x"), std::nullopt);
  EXPECT_EQ(XmpOrientation("exif:Orientation=\"6\""), std::nullopt);
  EXPECT_EQ(XmpOrientation(""), std::nullopt);
}

TEST(ChooseOrientation, PrefersExifAndIgnoresOtherValues) {
  EXPECT_EQ(ChooseOrientation(6, 3), 6);
  EXPECT_EQ(ChooseOrientation(std::nullopt, 3), 3);
  EXPECT_EQ(ChooseOrientation(9, 3), kUpright);
  EXPECT_EQ(ChooseOrientation(0, std::nullopt), kUpright);
  EXPECT_EQ(ChooseOrientation(-1, std::nullopt), kUpright);
  EXPECT_EQ(ChooseOrientation(std::nullopt, std::nullopt), kUpright);
}

TEST(TurnUpright, MovesEachCorner) {
  // 1 2 3
  // 4 5 6
  const auto picture = [] {
    cv::Mat rgb(2, 3, CV_8UC3);
    for (int i = 0; i < 6; ++i) rgb.at<cv::Vec3b>(i / 3, i % 3) = cv::Vec3b::all(uint8_t(i + 1));
    return rgb;
  };
  struct Case {
    int orientation, width;
    std::vector<int> pixels;
  };
  for (const Case& c : {Case{1, 3, {1, 2, 3, 4, 5, 6}}, Case{2, 3, {3, 2, 1, 6, 5, 4}},
                        Case{3, 3, {6, 5, 4, 3, 2, 1}}, Case{4, 3, {4, 5, 6, 1, 2, 3}},
                        Case{5, 2, {1, 4, 2, 5, 3, 6}}, Case{6, 2, {4, 1, 5, 2, 6, 3}},
                        Case{7, 2, {6, 3, 5, 2, 4, 1}}, Case{8, 2, {3, 6, 2, 5, 1, 4}}}) {
    const cv::Mat turned = TurnUpright(picture(), c.orientation);
    std::vector<int> pixels;
    for (int i = 0; i < 6; ++i) {
      pixels.push_back(turned.at<cv::Vec3b>(i / turned.cols, i % turned.cols)[0]);
    }
    EXPECT_EQ(turned.cols, c.width) << c.orientation;
    EXPECT_EQ(pixels, c.pixels) << c.orientation;
  }
}

}  // namespace
}  // namespace deepencoder
