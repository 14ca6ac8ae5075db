// What a TIFF file's directory costs, looked at before libtiff reads it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <tiff.h>

#include <string>
#include <vector>

#include "encoder/image/decode.h"
#include "tests/encoder/image/shared_tiff.h"

namespace deepencoder {
namespace {

using ::testing::HasSubstr;

constexpr uint32_t kSide = 8;
constexpr uint16_t kPrivateTag = 50000;  // and those after it

void Put(std::string& text, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) text += static_cast<char>(value >> (8 * i));
}

struct Tag {
  uint16_t type;
  uint32_t count;
  size_t value_bytes;  // of each value
};

// Grey pixels, and further tags, whose values are one stretch (`shared`) or lie behind each other.
FileBytes TiffWithTags(const std::vector<Tag>& tags, bool shared) {
  struct Entry {
    uint16_t tag, type;
    uint32_t count;
    size_t value;
  };
  std::vector<Entry> entries = {{TIFFTAG_IMAGEWIDTH, TIFF_LONG, 1, kSide},
                                {TIFFTAG_IMAGELENGTH, TIFF_LONG, 1, kSide},
                                {TIFFTAG_BITSPERSAMPLE, TIFF_SHORT, 1, 8},
                                {TIFFTAG_COMPRESSION, TIFF_SHORT, 1, COMPRESSION_NONE},
                                {TIFFTAG_PHOTOMETRIC, TIFF_SHORT, 1, PHOTOMETRIC_MINISBLACK},
                                {TIFFTAG_STRIPOFFSETS, TIFF_LONG, 1, 8},
                                {TIFFTAG_SAMPLESPERPIXEL, TIFF_SHORT, 1, 1},
                                {TIFFTAG_ROWSPERSTRIP, TIFF_LONG, 1, kSide},
                                {TIFFTAG_STRIPBYTECOUNTS, TIFF_LONG, 1, kSide * kSide}};
  const size_t values_at =
      8 + kSide * kSide + 2 + 12 * (entries.size() + tags.size()) + 4;  // behind the directory
  size_t at = values_at, end = values_at;
  for (const Tag& tag : tags) {
    entries.push_back(
        {static_cast<uint16_t>(kPrivateTag + entries.size()), tag.type, tag.count, at});
    end = std::max(end, at + tag.count * tag.value_bytes);
    if (!shared) at = end;
  }
  std::string file("II*\0", 4);
  Put(file, 8 + kSide * kSide, 4);
  file.append(kSide * kSide, '\x7F');
  Put(file, entries.size(), 2);
  for (const Entry& entry : entries) {
    Put(file, entry.tag, 2);
    Put(file, entry.type, 2);
    Put(file, entry.count, 4);
    Put(file, entry.value, 4);
  }
  Put(file, 0, 4);
  file.resize(end, '\0');
  return ToBytes(file);
}

TEST(TiffDirectory, EntriesThatShareBytesAreRefused) {
  const std::vector<Tag> tags(30, {TIFF_UNDEFINED, 1 << 20, 1});
  const FileBytes file = TiffWithTags(tags, /*shared=*/true);
  EXPECT_LT(file.size(), size_t{2} << 20);
  for (const absl::Status& status :
       {ReadHeader(file, {}).status(), DecodeImage(file, {}).status()}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("its directory names 31457280 bytes of a file of 1049"));
  }
}

TEST(TiffDirectory, TwoResolutionsMayShareTheirBytes) {
  const FileBytes file = TiffWithTags({2, {TIFF_RATIONAL, 1, 8}}, /*shared=*/true);
  EXPECT_TRUE(DecodeImage(file, {}).ok()) << DecodeImage(file, {}).status();
}

TEST(TiffDirectory, ValuesAreCounted) {
  constexpr size_t kMiB = size_t{1} << 20;
  const auto tables = [](const std::vector<Tag>& tags) {
    const FileBytes file = TiffWithTags(tags, /*shared=*/false);
    EXPECT_TRUE(DecodeImage(file, {}).ok());
    return ReadHeader(file, {})->table_bytes;
  };
  EXPECT_LT(tables({}), 10'000u);
  // Each is kept; the largest is there twice more while it is read and set. And the file's own size.
  EXPECT_GE(tables({{TIFF_ASCII, kMiB, 1}}), (1 + 2 + 1) * kMiB);
  EXPECT_GE(tables({4, {TIFF_UNDEFINED, kMiB, 1}}), (4 + 2 + 4) * kMiB);
  EXPECT_LT(tables({4, {TIFF_UNDEFINED, kMiB, 1}}), 11 * kMiB);
  EXPECT_GE(tables({{TIFF_SHORT, kMiB / 2, 2}}), (1 + 2 + 1) * kMiB);
  EXPECT_GE(tables({{TIFF_DOUBLE, kMiB / 8, 8}}), (1 + 2 + 1) * kMiB);
}

TEST(TiffDirectory, ValuesThatAreNotAllThereCountWhileTheyAreRead) {
  FileBytes file = TiffWithTags({{TIFF_UNDEFINED, 2 << 20, 1}}, /*shared=*/false);
  file.resize(file.size() - 1);
  EXPECT_GE(ReadHeader(file, {})->table_bytes, size_t{4} << 20);
  EXPECT_TRUE(DecodeImage(file, {}).ok());
}

TEST(TiffDirectory, OfMoreEntriesThanAnyHasIsRefused) {
  std::string file("II+\0\x08\0\0\0\x10\0\0\0\0\0\0\0", 16);
  Put(file, 65536, 8);
  const auto status = ReadHeader(ToBytes(file), {}).status();
  EXPECT_THAT(std::string(status.message()), HasSubstr("a directory of 65536 entries"));
}

}  // namespace
}  // namespace deepencoder
