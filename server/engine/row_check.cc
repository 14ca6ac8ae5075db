#include "server/engine/row_check.h"

#include <cstdint>
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "encoder/model/config.h"
#include "encoder/model/geometry.h"

namespace deepencoder {
namespace {

// The bits of an exponent, which are all ones in what is not finite.
template <typename Bits>
bool IsFinite(const std::byte* element, Bits exponent) {
  Bits bits;
  std::memcpy(&bits, element, sizeof(bits));
  return (bits & exponent) != exponent;
}

bool IsFinite(DType type, const std::byte* element) {
  switch (type) {
    case DType::kBf16:
      return IsFinite<uint16_t>(element, 0x7F80);
    case DType::kFp16:
      return IsFinite<uint16_t>(element, 0x7C00);
    case DType::kFp32:
      return IsFinite<uint32_t>(element, 0x7F800000);
  }
  return false;
}

}  // namespace

bool RowsAreFinite(const EncodeItem& item, int lines) {
  const size_t row_bytes = kEmbeddingWidth * SizeOf(item.dtype);
  for (int line = 0; line < lines; ++line) {
    const std::byte* row = item.rows + line * item.line_stride;
    for (int column = 0; column < lines; ++column, row += row_bytes) {
      if (!IsFinite(item.dtype, row) ||
          !IsFinite(item.dtype, row + row_bytes - SizeOf(item.dtype))) {
        return false;
      }
    }
  }
  return true;
}

absl::Status CheckWithPlainImage(Backend* backend, EncoderSlot* slot, int side) {
  cv::Mat grey(side, side, CV_8UC3, cv::Scalar::all(kLetterboxGray));
  const ViewPlan plan = {.mode = Mode::kBase,
                         .image_width = side,
                         .image_height = side,
                         .tiles = {},
                         .jobs = {{.width = side,
                                   .height = side,
                                   .side = side,
                                   .columns = 1,
                                   .rows = 1,
                                   .left = 0,
                                   .top = 0}}};
  const auto views = backend->MakeViews(RgbImage(std::move(grey)), plan);
  if (!views.ok()) return views.status();
  const int lines = OutputGridOf(side);
  const size_t line_bytes = sizeof(float) * kEmbeddingWidth * lines;
  std::vector<std::byte> rows(line_bytes * lines);
  const EncodeItem item = {.views = views->get(),
                           .view = 0,
                           .dtype = DType::kFp32,
                           .rows = rows.data(),
                           .line_stride = line_bytes};
  EncodeStats stats;
  if (absl::Status status = slot->Encode(side, {&item, 1}, &stats); !status.ok()) return status;
  if (RowsAreFinite(item, lines)) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(
      "the device makes values that are not finite of a plain grey image of side ", side));
}

}  // namespace deepencoder
