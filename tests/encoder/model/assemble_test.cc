#include "encoder/model/assemble.h"

#include <gtest/gtest.h>

#include <cstring>
#include <set>
#include <vector>

#include "encoder/model/config.h"

namespace deepencoder {
namespace {

TEST(FillMarkerRowsTest, WritesItsRowsInEveryTypeAndNoOther) {
  std::vector<float> newline(kEmbeddingWidth), separator(kEmbeddingWidth);
  for (int i = 0; i < kEmbeddingWidth; ++i) {
    newline[i] = 1.0f + static_cast<float>(i) / 3.0f;
    separator[i] = -newline[i];
  }
  const SequenceLayout layout = LayoutOf(Mode::kGundam, {2, 1});
  const std::set<int> newline_rows(layout.newline_rows.begin(), layout.newline_rows.end());
  for (const DType type : {DType::kBf16, DType::kFp16, DType::kFp32}) {
    const size_t row_bytes = kEmbeddingWidth * SizeOf(type);
    std::vector<std::byte> sequence(layout.rows * row_bytes, std::byte{0x55});
    FillMarkerRows(layout, newline.data(), separator.data(), type, sequence.data());

    const std::vector<std::byte> untouched(row_bytes, std::byte{0x55});
    std::vector<float> row(kEmbeddingWidth);
    for (int r = 0; r < layout.rows; ++r) {
      const std::byte* stored = sequence.data() + r * row_bytes;
      if (!newline_rows.contains(r) && r != layout.separator_row) {
        ASSERT_EQ(std::memcmp(stored, untouched.data(), row_bytes), 0) << r;
        continue;
      }
      const std::vector<float>& marker = r == layout.separator_row ? separator : newline;
      ConvertToFloat(type, stored, row.data(), row.size());
      for (int i = 0; i < kEmbeddingWidth; ++i) ASSERT_EQ(row[i], RoundTo(type, marker[i])) << r;
    }
  }
}

}  // namespace
}  // namespace deepencoder
