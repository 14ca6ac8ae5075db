// GIF over giflib: the first frame, on a canvas grown to hold it, as Pillow shows it.
#include <gif_lib.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "encoder/image/formats.h"
#include "encoder/image/orientation.h"
#include "encoder/image/pixels.h"

namespace deepencoder {
namespace {

absl::Status Broken(const std::string& why) {
  return absl::InvalidArgumentError(absl::StrCat("broken or truncated GIF file: ", why));
}

class GifReader {
 public:
  explicit GifReader(Bytes file) : rest_(file) {}
  ~GifReader() {
    if (gif_ != nullptr) DGifCloseFile(gif_, nullptr);
  }
  GifReader(const GifReader&) = delete;
  GifReader& operator=(const GifReader&) = delete;

  // Reads up to the pixels of the first frame.
  absl::Status ReadHeader() {
    int error = D_GIF_SUCCEEDED;
    gif_ = DGifOpen(this, Read, &error);
    if (gif_ == nullptr) return Error(error);
    for (;;) {
      GifRecordType type = UNDEFINED_RECORD_TYPE;
      if (DGifGetRecordType(gif_, &type) == GIF_ERROR) return Error(gif_->Error);
      if (type == TERMINATE_RECORD_TYPE) return Broken("it has no frame");
      if (type == EXTENSION_RECORD_TYPE) {
        absl::Status read = ReadExtension();
        if (!read.ok()) return read;
      } else if (type == IMAGE_DESC_RECORD_TYPE) {
        if (DGifGetImageDesc(gif_) == GIF_ERROR) return Error(gif_->Error);
        if (frame().width < 1 || frame().height < 1) return Broken("its first frame is empty");
        return absl::OkStatus();
      }
    }
  }

  // The canvas: the logical screen, or more if the first frame reaches beyond it.
  StoredSize size() const {
    const cv::Rect place = frame();
    return {std::max<int64_t>(gif_->SWidth, place.x + place.width),
            std::max<int64_t>(gif_->SHeight, place.y + place.height)};
  }
  cv::Rect frame() const {
    const GifImageDesc& image = gif_->Image;
    return {image.Left, image.Top, image.Width, image.Height};
  }
  int transparent() const { return transparent_; }  // index, or NO_TRANSPARENT_COLOR

  // RGB of each index. Indices are grey levels without any table, and with one that says just that; indices past
  // another table are black.
  Palette ReadPalette() const {
    Palette palette{};
    const ColorMapObject* map =
        gif_->Image.ColorMap != nullptr ? gif_->Image.ColorMap : gif_->SColorMap;
    const int entries = map != nullptr ? std::min(map->ColorCount, 256) : 0;
    for (int i = 0; i < entries; ++i) {
      const GifColorType& entry = map->Colors[i];
      palette[static_cast<size_t>(i)] = {entry.Red, entry.Green, entry.Blue};
    }
    return GreyIfRamp(palette, static_cast<size_t>(entries));
  }

  // Palette indices of the first frame into its place on `canvas` (CV_8UC1).
  absl::Status ReadPixels(cv::Mat& canvas) {
    struct Pass {
      int first, step;
    };
    constexpr std::array<Pass, 4> kInterlaced = {{{0, 8}, {4, 8}, {2, 4}, {1, 2}}};
    constexpr std::array<Pass, 1> kProgressive = {{{0, 1}}};
    cv::Mat target = canvas(frame());
    const std::span<const Pass> passes = gif_->Image.Interlace
                                             ? std::span<const Pass>(kInterlaced)
                                             : std::span<const Pass>(kProgressive);
    for (const Pass& pass : passes) {
      for (int y = pass.first; y < target.rows; y += pass.step) {
        if (DGifGetLine(gif_, target.ptr(y), target.cols) == GIF_ERROR) return Error(gif_->Error);
      }
    }
    return absl::OkStatus();
  }

 private:
  absl::Status ReadExtension() {
    int code = 0;
    GifByteType* block = nullptr;  // a length, then as many bytes; owned by giflib
    if (DGifGetExtension(gif_, &code, &block) == GIF_ERROR) return Error(gif_->Error);
    while (block != nullptr) {
      GraphicsControlBlock control;
      if (code == GRAPHICS_EXT_FUNC_CODE &&
          DGifExtensionToGCB(block[0], block + 1, &control) == GIF_OK) {
        // The last one that names an index: a further extension without any takes none back.
        if (control.TransparentColor != NO_TRANSPARENT_COLOR)
          transparent_ = control.TransparentColor;
      }
      if (DGifGetExtensionNext(gif_, &block) == GIF_ERROR) return Error(gif_->Error);
    }
    return absl::OkStatus();
  }

  static absl::Status Error(int code) {
    const char* text = GifErrorString(code);
    return Broken(text != nullptr ? text : "unknown error");
  }

  static int Read(GifFileType* gif, GifByteType* to, int size) {
    auto* self = static_cast<GifReader*>(gif->UserData);
    const size_t count = std::min(static_cast<size_t>(size), self->rest_.size());
    if (count > 0) std::memcpy(to, self->rest_.data(), count);
    self->rest_ = self->rest_.subspan(count);
    return static_cast<int>(count);
  }

  Bytes rest_;
  GifFileType* gif_ = nullptr;
  int transparent_ = NO_TRANSPARENT_COLOR;
};

}  // namespace

absl::StatusOr<Decoded> DecodeGif(Bytes file, const ImageHeader& header,
                                  const DecodeOptions& options) {
  GifReader reader(file);
  const absl::Status readable = reader.ReadHeader();
  if (!readable.ok()) return readable;
  if (reader.size() != StoredSize{header.width, header.height}) {
    return absl::InvalidArgumentError(kTwoSizes);
  }
  const bool has_transparent = reader.transparent() != NO_TRANSPARENT_COLOR;
  // Outside the frame: the transparent index, else index 0.
  cv::Mat indices(header.height, header.width, CV_8UC1,
                  cv::Scalar(has_transparent ? reader.transparent() : 0));
  const absl::Status pixels = reader.ReadPixels(indices);
  if (!pixels.ok()) return pixels;

  Palette palette = reader.ReadPalette();
  if (has_transparent && options.alpha == AlphaPolicy::kWhite) {
    palette[static_cast<size_t>(reader.transparent())] = cv::Vec3b::all(255);
  }
  cv::Mat rgb(header.height, header.width, CV_8UC3);
  for (int y = 0; y < rgb.rows; ++y) {
    const uint8_t* from = indices.ptr(y);
    std::transform(from, from + rgb.cols, rgb.ptr<cv::Vec3b>(y),
                   [&](uint8_t index) { return palette[index]; });
  }
  return Decoded{rgb, kUpright};
}

}  // namespace deepencoder
