#include "encoder/image/orientation.h"

namespace deepencoder {
namespace {

constexpr uint32_t kOrientationTag = 0x0112;
constexpr size_t kEntryBytes = 12;  // of an IFD: tag 2, type 2, count 4, value or offset 4

// First value of an integer entry, which is stored in the entry itself; 0 for bytes and text, which are no number
// to Pillow, and nullopt for other types.
// TIFF 6.0 types: 1 BYTE, 2 ASCII, 3 SHORT, 4 LONG, 6 SBYTE, 7 UNDEFINED, 8 SSHORT, 9 SLONG, 13 IFD.
std::optional<int> FirstValue(Bytes exif, size_t entry, std::endian order) {
  const auto type = ReadInteger(exif, entry + 2, 2, order);
  const auto count = ReadInteger(exif, entry + 4, 4, order);
  if (!type || !count || *count == 0) return std::nullopt;
  size_t size = 0;
  switch (*type) {
    case 1:
    case 2:
    case 7:
      return 0;
    case 6:
      size = 1;
      break;
    case 3:
    case 8:
      size = 2;
      break;
    case 4:
    case 9:
    case 13:
      size = 4;
      break;
    default:
      return std::nullopt;
  }
  size_t at = entry + 8;
  if (*count > 4 / size) {  // does not fit: the field is an offset
    const auto offset = ReadInteger(exif, at, 4, order);
    if (!offset) return std::nullopt;
    at = *offset;
  }
  const auto value = ReadInteger(exif, at, size, order);
  if (!value) return std::nullopt;
  return static_cast<int>(*value);
}

}  // namespace

std::optional<int> ExifOrientation(Bytes exif) {
  using std::string_view_literals::operator""sv;
  if (StartsWith(exif, "Exif\0\0"sv)) exif = exif.subspan(6);
  std::endian order = std::endian::little;
  if (StartsWith(exif, "MM\0*"sv)) {
    order = std::endian::big;
  } else if (!StartsWith(exif, "II*\0"sv)) {
    return std::nullopt;
  }
  const auto directory = ReadInteger(exif, 4, 4, order);
  if (!directory) return std::nullopt;
  const auto entries = ReadInteger(exif, *directory, 2, order);
  if (!entries) return std::nullopt;
  for (size_t i = 0; i < *entries; ++i) {
    const size_t entry = size_t{*directory} + 2 + i * kEntryBytes;
    const auto tag = ReadInteger(exif, entry, 2, order);
    if (!tag) return std::nullopt;
    if (*tag == kOrientationTag) return FirstValue(exif, entry, order);
  }
  return std::nullopt;
}

std::optional<int> XmpOrientation(std::string_view xmp) {
  constexpr std::string_view kName = "tiff:Orientation";
  for (size_t at = xmp.find(kName); at != std::string_view::npos; at = xmp.find(kName, at)) {
    at += kName.size();
    std::string_view rest = xmp.substr(at);
    if (rest.starts_with("=\"")) {
      rest.remove_prefix(2);
    } else if (rest.starts_with(">")) {
      rest.remove_prefix(1);
    } else {
      continue;
    }
    if (!rest.empty() && rest[0] >= '0' && rest[0] <= '9') return rest[0] - '0';
  }
  return std::nullopt;
}

int ChooseOrientation(std::optional<int> exif, std::optional<int> xmp) {
  const int value = exif.value_or(xmp.value_or(kUpright));
  return value >= 1 && value <= 8 ? value : kUpright;
}

cv::Mat TurnUpright(cv::Mat rgb, int orientation) {
  // Requests are decoded by a pool of threads already: OpenCV must not start threads of its own.
  static const bool single_threaded = [] {
    cv::setNumThreads(1);
    return true;
  }();
  (void)single_threaded;
  constexpr int kMirrorY = 0, kMirrorX = 1, kMirrorBoth = -1;  // flip codes of OpenCV
  if (orientation >= 5) {
    cv::Mat transposed;
    cv::transpose(rgb, transposed);
    rgb = transposed;
  }
  switch (orientation) {
    case 2:  // mirrored left to right
    case 6:  // to be turned by 90 degrees clockwise
      cv::flip(rgb, rgb, kMirrorX);
      break;
    case 3:  // upside down
    case 7:  // mirrored at the other diagonal
      cv::flip(rgb, rgb, kMirrorBoth);
      break;
    case 4:  // mirrored top to bottom
    case 8:  // to be turned by 90 degrees counter-clockwise
      cv::flip(rgb, rgb, kMirrorY);
      break;
    default:  // 1 upright, 5 transposed
      break;
  }
  return rgb;
}

}  // namespace deepencoder
