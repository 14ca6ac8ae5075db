// JPEG over libjpeg-turbo: islow DCT and fancy upsampling, its defaults and Pillow's.
//
// libjpeg reports errors by a function that must not return, so calls into it run under setjmp. No
// object with a destructor lives in a frame that the jump leaves.
//
// jpeglib.h needs <cstdio> before it, jerror.h needs jpeglib.h:
// clang-format off
#include <cstdio>
#include <jpeglib.h>
#include <jerror.h>
// clang-format on

#include <algorithm>
#include <array>
#include <csetjmp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "encoder/image/formats.h"
#include "encoder/image/orientation.h"
#include "encoder/image/pixels.h"

namespace deepencoder {
namespace {

// A progressive file may repeat scans over the whole picture at a few bytes each; real ones have about 10.
constexpr int kMaxScans = 100;

// Warnings after which libjpeg goes on with invented pixels.
bool MeansMissingData(int code) {
  constexpr std::array kCodes = {JWRN_JPEG_EOF, JWRN_HIT_MARKER, JWRN_MUST_RESYNC,
                                 JWRN_HUFF_BAD_CODE, JWRN_ARITH_BAD_CODE};
  return std::find(kCodes.begin(), kCodes.end(), code) != kCodes.end();
}

class JpegReader {
 public:
  JpegReader() {
    cinfo_.err = jpeg_std_error(&errors_.base);
    errors_.base.error_exit = Fail;
    errors_.base.emit_message = OnMessage;
    progress_.progress_monitor = OnProgress;
  }
  ~JpegReader() { jpeg_destroy_decompress(&cinfo_); }
  JpegReader(const JpegReader&) = delete;
  JpegReader& operator=(const JpegReader&) = delete;

  absl::Status ReadHeader(Bytes file) {
    const bool done = Guard([&] {
      jpeg_create_decompress(&cinfo_);
      cinfo_.progress = &progress_;
      jpeg_mem_src(&cinfo_, AsUint8(file), file.size());
      jpeg_read_header(&cinfo_, TRUE);
    });
    if (!done) return Error();
    if (cinfo_.data_precision != 8) {
      return Unsupported(absl::StrCat(cinfo_.data_precision, " bits a sample"));
    }
    const int components = cinfo_.num_components;
    if (components != 1 && components != 3 && components != 4) {
      return Unsupported(absl::StrCat(components, " colour components"));
    }
    return absl::OkStatus();
  }

  StoredSize size() const { return {cinfo_.image_width, cinfo_.image_height}; }

  // `rgb` has the size of the header.
  absl::Status ReadPixels(cv::Mat& rgb) {
    const bool cmyk = cinfo_.num_components == 4;
    cinfo_.out_color_space = cmyk ? JCS_CMYK : JCS_RGB;  // grey is replicated, YCCK loses its YCC
    std::vector<uint8_t> row(cmyk ? size_t{cinfo_.image_width} * 4 : 0);
    const bool done = Guard([&] {
      jpeg_start_decompress(&cinfo_);
      while (cinfo_.output_scanline < cinfo_.output_height) {
        uint8_t* const target = rgb.ptr(static_cast<int>(cinfo_.output_scanline));
        JSAMPROW line = cmyk ? row.data() : target;
        if (jpeg_read_scanlines(&cinfo_, &line, 1) == 1 && cmyk) {
          CmykToRgb(row.data(), /*inverted=*/true, target, cinfo_.image_width);
        }
      }
      jpeg_finish_decompress(&cinfo_);
    });
    return done ? absl::OkStatus() : Error();
  }

 private:
  struct Errors {
    jpeg_error_mgr base;  // first: libjpeg hands back a pointer to it
    std::jmp_buf jump;
    std::array<char, JMSG_LENGTH_MAX> text;
  };

  template <typename Step>
  bool Guard(const Step& step) {
    if (setjmp(errors_.jump) != 0) return false;  // NOLINT(cert-err52-cpp): libjpeg's way
    step();
    return true;
  }

  [[noreturn]] static void Fail(j_common_ptr cinfo) {
    auto* errors = reinterpret_cast<Errors*>(cinfo->err);
    cinfo->err->format_message(cinfo, errors->text.data());
    std::longjmp(errors->jump, 1);  // NOLINT(cert-err52-cpp)
  }
  static void OnMessage(j_common_ptr cinfo, int level) {
    const bool is_warning = level < 0;
    if (is_warning && MeansMissingData(cinfo->err->msg_code)) Fail(cinfo);
  }
  static void OnProgress(j_common_ptr cinfo) {
    if (reinterpret_cast<j_decompress_ptr>(cinfo)->input_scan_number <= kMaxScans) return;
    auto* errors = reinterpret_cast<Errors*>(cinfo->err);
    std::snprintf(errors->text.data(), errors->text.size(), "more than %d scans", kMaxScans);
    std::longjmp(errors->jump, 1);  // NOLINT(cert-err52-cpp)
  }

  absl::Status Error() const {
    return absl::InvalidArgumentError(
        absl::StrCat("broken or truncated JPEG file: ", std::string(errors_.text.data())));
  }
  static absl::Status Unsupported(const std::string& what) {
    return absl::InvalidArgumentError(absl::StrCat("JPEG files of ", what, " are not supported"));
  }

  Errors errors_{};
  jpeg_progress_mgr progress_{};
  jpeg_decompress_struct cinfo_{};
};

// EXIF and XMP lie in APP1 segments before the first scan.
int OrientationOf(Bytes file) {
  using std::string_view_literals::operator""sv;
  constexpr uint32_t kApp1 = 0xFFE1, kStartOfScan = 0xFFDA;
  constexpr std::string_view kExif = "Exif\0\0"sv, kXmp = "http://ns.adobe.com/xap/1.0/\0"sv;
  std::optional<int> exif, xmp;
  size_t at = 2;
  while (const auto marker = ReadInteger(file, at, 2, std::endian::big)) {
    if (*marker == 0xFFFF) {  // fill byte
      ++at;
      continue;
    }
    const auto length = ReadInteger(file, at + 2, 2, std::endian::big);  // counts itself
    if (*marker < 0xFF00 || *marker == kStartOfScan || !length || *length < 2) break;
    const Bytes segment = Slice(file, at + 4, *length - 2);
    if (*marker == kApp1 && !exif && StartsWith(segment, kExif)) exif = ExifOrientation(segment);
    if (*marker == kApp1 && !xmp && StartsWith(segment, kXmp)) {
      xmp = XmpOrientation(AsText(segment.subspan(kXmp.size())));
    }
    at += 2 + *length;
  }
  return ChooseOrientation(exif, xmp);
}

}  // namespace

absl::StatusOr<Decoded> DecodeJpeg(Bytes file, const ImageHeader& header, const DecodeOptions&) {
  JpegReader reader;
  const absl::Status readable = reader.ReadHeader(file);
  if (!readable.ok()) return readable;
  if (reader.size() != StoredSize{header.width, header.height}) {
    return absl::InvalidArgumentError(kTwoSizes);
  }
  Decoded decoded{cv::Mat(header.height, header.width, CV_8UC3), OrientationOf(file)};
  const absl::Status pixels = reader.ReadPixels(decoded.rgb);
  if (!pixels.ok()) return pixels;
  return decoded;
}

}  // namespace deepencoder
