// The decoders behind DecodeImage, one file a format. They check structure, decode.cc checks limits.
#pragma once

#include <cstdint>
#include <opencv2/core.hpp>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "encoder/image/bytes.h"
#include "encoder/image/decode.h"

namespace deepencoder {

// As the file states it, before orientation.
struct StoredSize {
  int64_t width, height;
  bool operator==(const StoredSize&) const = default;
};

// A decoder's refusal where its library reads another size than ReadXSize did.
inline constexpr char kTwoSizes[] = "broken image file: its headers state two sizes";

struct Decoded {
  cv::Mat rgb;      // CV_8UC3, of the stored size
  int orientation;  // 1..8, not yet applied
};

// The size from the header. INVALID_ARGUMENT if the header is broken.
absl::StatusOr<StoredSize> ReadJpegSize(Bytes file);
absl::StatusOr<StoredSize> ReadPngSize(Bytes file);
absl::StatusOr<StoredSize> ReadWebpSize(Bytes file);
absl::StatusOr<StoredSize> ReadTiffSize(Bytes file);
absl::StatusOr<StoredSize> ReadBmpSize(Bytes file);
absl::StatusOr<StoredSize> ReadGifSize(Bytes file);

// ImageHeader::table_bytes of a WebP file: prefix codes of its lossless pictures or alpha.
size_t WebpTableBytes(Bytes file, const StoredSize& size);
// Of a TIFF file: the values of its directory's entries, and a strip or tile as it is stored.
size_t TiffTableBytes(Bytes file, const StoredSize& size);
// What libtiff may take at once. Its tables and buffers are of the order of the file or of a row; never of this.
uint64_t MaxTiffAllocation(Bytes file);

// The pixels of a file whose header ReadXSize has read and the limits allow. INVALID_ARGUMENT if the
// data is broken, of an unsupported kind, or ends early. Allocation failures throw.
absl::StatusOr<Decoded> DecodeJpeg(Bytes file, const ImageHeader& header,
                                   const DecodeOptions& options);
absl::StatusOr<Decoded> DecodePng(Bytes file, const ImageHeader& header,
                                  const DecodeOptions& options);
absl::StatusOr<Decoded> DecodeWebp(Bytes file, const ImageHeader& header,
                                   const DecodeOptions& options);
absl::StatusOr<Decoded> DecodeTiff(Bytes file, const ImageHeader& header,
                                   const DecodeOptions& options);
absl::StatusOr<Decoded> DecodeBmp(Bytes file, const ImageHeader& header,
                                  const DecodeOptions& options);
absl::StatusOr<Decoded> DecodeGif(Bytes file, const ImageHeader& header,
                                  const DecodeOptions& options);

}  // namespace deepencoder
