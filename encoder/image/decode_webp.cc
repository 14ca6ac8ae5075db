// WebP over libwebp. The container (RIFF) is read here: it holds the metadata, and the first frame of
// an animation.
#include <webp/decode.h>

#include <algorithm>
#include <initializer_list>
#include <new>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "encoder/image/formats.h"
#include "encoder/image/orientation.h"
#include "encoder/image/pixels.h"

namespace deepencoder {
namespace {

absl::Status Broken(const std::string& why) {
  return absl::InvalidArgumentError(absl::StrCat("broken or truncated WebP file: ", why));
}

const char* Why(VP8StatusCode status) {
  switch (status) {
    case VP8_STATUS_BITSTREAM_ERROR:
      return "its bitstream is broken, or asks for more memory than an image may take";
    case VP8_STATUS_UNSUPPORTED_FEATURE:
      return "it uses a feature that is not supported";
    case VP8_STATUS_SUSPENDED:
    case VP8_STATUS_NOT_ENOUGH_DATA:
      return "the file ends early";
    default:
      return "it cannot be decoded";
  }
}

constexpr size_t kFileHeader = 12, kChunkHeader = 8;

// Where the first chunk of one of these types starts.
std::optional<size_t> PlaceOfChunk(Bytes file, std::initializer_list<std::string_view> types) {
  size_t at = kFileHeader;
  while (const auto size = ReadInteger(file, at + 4, 4, std::endian::little)) {
    for (const std::string_view type : types) {
      if (StartsWith(Slice(file, at), type)) return at;
    }
    at += kChunkHeader + *size + *size % 2;
  }
  return std::nullopt;
}

// The payload of the first chunk of this type; empty if there is none.
Bytes FindChunk(Bytes file, std::string_view type) {
  const auto at = PlaceOfChunk(file, {type});
  if (!at) return {};
  return Slice(file, *at + kChunkHeader, *ReadInteger(file, *at + 4, 4, std::endian::little));
}

absl::StatusOr<WebPBitstreamFeatures> FeaturesOf(Bytes bitstream) {
  WebPBitstreamFeatures features;
  const VP8StatusCode status = WebPGetFeatures(AsUint8(bitstream), bitstream.size(), &features);
  if (status != VP8_STATUS_OK) return Broken(Why(status));
  return features;
}

// A picture to be decoded and its place on the canvas.
struct Frame {
  Bytes bitstream;
  cv::Rect place;
};

// First frame of an animation. ANMF: x/2, y/2, width-1, height-1, duration (24 bits each), flags, then
// chunks of its own as in a still file.
absl::StatusOr<Frame> FirstFrame(Bytes file) {
  constexpr size_t kFrameHeader = 16;
  const Bytes chunk = FindChunk(file, "ANMF");
  if (chunk.size() <= kFrameHeader) return Broken("the animation has no frame");
  const auto field = [&](size_t i) {
    return static_cast<int>(*ReadInteger(chunk, 3 * i, 3, std::endian::little));
  };
  const Bytes bitstream = chunk.subspan(kFrameHeader);
  const auto features = FeaturesOf(bitstream);
  if (!features.ok()) return features.status();
  const cv::Rect place(2 * field(0), 2 * field(1), field(2) + 1, field(3) + 1);
  if (features->width != place.width || features->height != place.height) {
    return Broken("its first frame has another size than it says");
  }
  return Frame{bitstream, place};
}

// Decodes into the frame's place on the canvas, which is CV_8UC3 or CV_8UC4.
absl::Status DecodeFrame(const Frame& frame, cv::Mat& canvas) {
  cv::Mat target = canvas(frame.place);
  WebPDecoderConfig config;
  if (WebPInitDecoderConfig(&config) == 0) return absl::InternalError("libwebp: version mismatch");
  config.output.colorspace = canvas.channels() == 4 ? MODE_RGBA : MODE_RGB;
  config.output.is_external_memory = 1;
  config.output.u.RGBA.rgba = target.ptr();
  config.output.u.RGBA.stride = static_cast<int>(target.step);
  config.output.u.RGBA.size = target.step * static_cast<size_t>(target.rows - 1) +
                              static_cast<size_t>(target.cols) * target.elemSize();
  const VP8StatusCode status =
      WebPDecode(AsUint8(frame.bitstream), frame.bitstream.size(), &config);
  WebPFreeDecBuffer(&config.output);
  if (status == VP8_STATUS_OUT_OF_MEMORY) throw std::bad_alloc();  // as the other decoders
  return status == VP8_STATUS_OK ? absl::OkStatus() : Broken(Why(status));
}

}  // namespace

// A lossless picture has a group of five prefix codes, or one for each block of 4 x 4 pixels and more;
// an entropy image says which, 16 bits a block. libwebp makes all lookup tables before it reads a code:
// for as many groups as the entropy image names, or for the largest of the names where that is at most
// 1,000. (RFC 9649, 6.2.2; libwebp's dec/vp8l_dec.c, ReadHuffmanCodes.)
size_t WebpTableBytes(Bytes file, const StoredSize& size) {
  constexpr int64_t kNamedGroups = 1000, kBlock = 4;
  // Tables of four alphabets, of the green one with the largest color cache, 4 bytes an entry; the group.
  constexpr size_t kGroupBytes = (630 * 3 + 410 + 2704) * 4 + 640;
  const auto picture = PlaceOfChunk(file, {"VP8 ", "VP8L", "ALPH", "ANMF"});
  if (!picture || StartsWith(Slice(file, *picture), "VP8 ")) return 0;  // no lossless part
  const int64_t blocks =
      ((size.width + kBlock - 1) / kBlock) * ((size.height + kBlock - 1) / kBlock);
  // Names that all differ take over 8 bits each.
  const int64_t differing = std::min(blocks, static_cast<int64_t>(file.size()));
  const int64_t named = std::min(kNamedGroups, size.width * size.height);
  return std::min(kMaxWebpTableBytes,
                  kGroupBytes * static_cast<size_t>(std::max(named, differing)));
}

absl::StatusOr<Decoded> DecodeWebp(Bytes file, const ImageHeader& header,
                                   const DecodeOptions& options) {
  const auto features = FeaturesOf(file);
  if (!features.ok()) return features.status();
  if (features->width != header.width || features->height != header.height) {
    return absl::InvalidArgumentError(kTwoSizes);
  }
  const cv::Rect whole(0, 0, header.width, header.height);
  absl::StatusOr<Frame> frame = Frame{file, whole};
  if (features->has_animation != 0) frame = FirstFrame(file);
  if (!frame.ok()) return frame.status();
  if ((frame->place & whole) != frame->place) return Broken("a frame lies outside the canvas");

  const bool composite = options.alpha == AlphaPolicy::kWhite && features->has_alpha != 0;
  // What the first frame of an animation leaves free is transparent black.
  cv::Mat canvas(whole.size(), composite ? CV_8UC4 : CV_8UC3);
  if (frame->place != whole) canvas.setTo(cv::Scalar::all(0));
  const absl::Status pixels = DecodeFrame(*frame, canvas);
  if (!pixels.ok()) return pixels;
  if (composite) {
    cv::Mat rgb(whole.size(), CV_8UC3);
    CompositeOnWhite(canvas.ptr(), rgb.ptr(), canvas.total());
    canvas = rgb;
  }
  const Bytes xmp = FindChunk(file, "XMP ");
  return Decoded{canvas, ChooseOrientation(ExifOrientation(FindChunk(file, "EXIF")),
                                           XmpOrientation(AsText(xmp)))};
}

}  // namespace deepencoder
