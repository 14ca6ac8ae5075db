// Where an image's file becomes pixels: in this process, or in one that can do nothing else
// (server/sandbox).
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "absl/status/statusor.h"
#include "encoder/image/decode.h"
#include "encoder/image/image.h"

namespace deepencoder {

struct HeldImage {
  std::shared_ptr<const void> holder;  // of what `image` lies in; null if it owns its pixels
  RgbImage image;                      // destroyed before `holder` is
};

// Thread-safe.
class ImageDecoder {
 public:
  virtual ~ImageDecoder() = default;
  // Errors as DecodeImage (encoder/image/decode.h), and the implementation's own.
  virtual absl::StatusOr<HeldImage> Decode(std::span<const std::byte> file,
                                           const DecodeOptions& options) = 0;
};

// In the caller's thread.
class InProcessDecoder final : public ImageDecoder {
 public:
  absl::StatusOr<HeldImage> Decode(std::span<const std::byte> file,
                                   const DecodeOptions& options) override {
    absl::StatusOr<RgbImage> image = DecodeImage(file, options);
    if (!image.ok()) return image.status();
    return HeldImage{nullptr, *std::move(image)};
  }
};

}  // namespace deepencoder
