#include "tests/encoder/image/shared_tiff.h"

#include <tiff.h>
#include <zlib.h>

#include <algorithm>
#include <stdexcept>
#include <utility>
#include <vector>

namespace deepencoder {
namespace {

void Put(FileBytes& file, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) file.push_back(static_cast<std::byte>(value >> (8 * i)));
}

struct Entry {
  uint16_t tag, type;
  std::vector<uint32_t> values;
};

// Ascending, as a directory must be.
std::vector<Entry> EntriesOf(const SharedTiff& tiff, uint32_t data_bytes) {
  constexpr uint32_t kDataAt = 8;  // behind the header
  const bool tiled = tiff.tile_width != 0;
  const uint32_t tile_width = tiled ? tiff.tile_width : tiff.width;
  const uint32_t tile_height = tiled ? tiff.tile_height : 1;
  const size_t count = size_t{(tiff.width + tile_width - 1) / tile_width} *
                       ((tiff.height + tile_height - 1) / tile_height) *
                       (tiff.planar == PLANARCONFIG_SEPARATE ? tiff.samples : 1);
  const std::vector<uint32_t> offsets(count, kDataAt), sizes(count, data_bytes);
  std::vector<Entry> entries = {
      {TIFFTAG_IMAGEWIDTH, TIFF_LONG, {tiff.width}},
      {TIFFTAG_IMAGELENGTH, TIFF_LONG, {tiff.height}},
      {TIFFTAG_BITSPERSAMPLE, TIFF_SHORT, std::vector<uint32_t>(tiff.samples, 8)},
      {TIFFTAG_COMPRESSION, TIFF_SHORT, {tiff.compression}},
      {TIFFTAG_PHOTOMETRIC, TIFF_SHORT, {tiff.photometric}},
      {TIFFTAG_SAMPLESPERPIXEL, TIFF_SHORT, {tiff.samples}},
      {TIFFTAG_PLANARCONFIG, TIFF_SHORT, {tiff.planar}},
  };
  if (tiled) {
    entries.push_back({TIFFTAG_TILEWIDTH, TIFF_LONG, {tile_width}});
    entries.push_back({TIFFTAG_TILELENGTH, TIFF_LONG, {tile_height}});
    entries.push_back({TIFFTAG_TILEOFFSETS, TIFF_LONG, offsets});
    entries.push_back({TIFFTAG_TILEBYTECOUNTS, TIFF_LONG, sizes});
  } else {
    entries.push_back({TIFFTAG_STRIPOFFSETS, TIFF_LONG, offsets});
    entries.push_back({TIFFTAG_ROWSPERSTRIP, TIFF_LONG, {1}});
    entries.push_back({TIFFTAG_STRIPBYTECOUNTS, TIFF_LONG, sizes});
  }
  if (tiff.photometric == PHOTOMETRIC_YCBCR) {
    entries.push_back({TIFFTAG_YCBCRSUBSAMPLING, TIFF_SHORT, {tiff.subsampling, tiff.subsampling}});
  }
  std::sort(entries.begin(), entries.end(),
            [](const Entry& a, const Entry& b) { return a.tag < b.tag; });
  return entries;
}

}  // namespace

FileBytes EncodeSharedTiff(const SharedTiff& tiff, const FileBytes& data) {
  FileBytes file = ToBytes("II*"), directory;
  Put(file, 0, 1);
  const size_t padded = (data.size() + 3) / 4 * 4;
  const std::vector<Entry> entries = EntriesOf(tiff, static_cast<uint32_t>(data.size()));
  // Header, data, values that do not fit their entry, directory.
  FileBytes values;
  Put(directory, entries.size(), 2);
  for (const Entry& entry : entries) {
    const int bytes = entry.type == TIFF_LONG ? 4 : 2;
    FileBytes own;
    for (const uint32_t value : entry.values) Put(own, value, bytes);
    own.resize(std::max<size_t>(own.size() + own.size() % 2, 4));
    Put(directory, entry.tag, 2);
    Put(directory, entry.type, 2);
    Put(directory, entry.values.size(), 4);
    if (own.size() > 4) {
      Put(directory, 8 + padded + values.size(), 4);
      values.insert(values.end(), own.begin(), own.end());
    } else {
      directory.insert(directory.end(), own.begin(), own.end());
    }
  }
  Put(directory, 0, 4);  // no other directory
  Put(file, 8 + padded + values.size(), 4);
  file.insert(file.end(), data.begin(), data.end());
  file.resize(8 + padded);
  file.insert(file.end(), values.begin(), values.end());
  file.insert(file.end(), directory.begin(), directory.end());
  return file;
}

FileBytes DeflatedZeros(size_t bytes) {
  const std::vector<Bytef> zeros(bytes);
  uLongf size = compressBound(bytes);
  std::vector<uint8_t> packed(size);
  if (compress2(packed.data(), &size, zeros.data(), bytes, Z_BEST_COMPRESSION) != Z_OK) {
    throw std::runtime_error("cannot deflate");
  }
  packed.resize(size);
  return ToBytes(packed);
}

}  // namespace deepencoder
