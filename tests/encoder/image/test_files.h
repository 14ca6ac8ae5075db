// Image files for tests: those of tests/data, and ones made on the spot.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "encoder/image/image.h"

namespace deepencoder {

using FileBytes = std::vector<std::byte>;

FileBytes ReadTestFile(const std::string& path);
// tests/data/images/NAME
FileBytes ReadTestImage(const std::string& name);

FileBytes ToBytes(const std::vector<uint8_t>& bytes);
FileBytes ToBytes(const std::string& bytes);

// A picture whose pixels differ from their neighbours in all channels.
RgbImage TestPicture(int width, int height);

FileBytes EncodeJpeg(const RgbImage& image, bool progressive = false);
FileBytes EncodePng(const RgbImage& image);
FileBytes EncodeTiff(const RgbImage& image);  // LZW, strips of 8 rows

// A PNG chunk with its length and checksum.
FileBytes PngChunk(const std::string& type, const FileBytes& data);
// `png` with `chunk` put in after its IHDR.
FileBytes WithPngChunk(const FileBytes& png, const FileBytes& chunk);
// Only the header of a grey 8-bit PNG of this size, then the end.
FileBytes PngHeaderOnly(uint32_t width, uint32_t height);

}  // namespace deepencoder
