// What the directory of a TIFF file asks of its decoder, which its size in pixels does not say.
#pragma once

#include <tiffio.h>

#include <optional>
#include <string>

#include "encoder/image/bytes.h"

namespace deepencoder {

// Looked at before anything is decoded; nullopt: it may be. Otherwise what is too much:
//   a tile's memory: DecodeBytes counts on at most 4 MiB, or 16 bytes for each pixel of the picture
//   all tiles' padding: what lies beyond the picture is decoded too, and a short file can have much of it
//   strips or tiles that share data: each is read as if it were the only one
//   a Zstandard stream's window, and coefficients of progressive JPEG data, on which DecodeBytes counts too
// `planes_together`: planes of a tile are decoded side by side, not one after another.
std::optional<std::string> TiffExcess(TIFF* tiff, Bytes file, bool planes_together);

}  // namespace deepencoder
