#include "tests/encoder/image/test_files.h"

#include <png.h>
#include <zlib.h>

// jpeglib.h needs <cstdio> before it:
// clang-format off
#include <cstdio>
#include <jpeglib.h>
// clang-format on

#include <tiffio.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <stdexcept>

namespace deepencoder {

FileBytes ReadTestFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw std::runtime_error("cannot read " + path);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  return ToBytes(text);
}

FileBytes ReadTestImage(const std::string& name) {
  return ReadTestFile(std::string(DEEPENCODER_TEST_DATA) + "/images/" + name);
}

FileBytes ToBytes(const std::vector<uint8_t>& bytes) {
  const auto* begin = reinterpret_cast<const std::byte*>(bytes.data());
  return {begin, begin + bytes.size()};
}

FileBytes ToBytes(const std::string& bytes) {
  const auto* begin = reinterpret_cast<const std::byte*>(bytes.data());
  return {begin, begin + bytes.size()};
}

RgbImage TestPicture(int width, int height) {
  cv::Mat rgb(height, width, CV_8UC3);
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) {
      rgb.at<cv::Vec3b>(y, x) = {static_cast<uint8_t>(x * 7 + y), static_cast<uint8_t>(y * 5 ^ x),
                                 static_cast<uint8_t>((x * 13 + y * 29) % 251)};
    }
  }
  return RgbImage(rgb);
}

FileBytes EncodeJpeg(const RgbImage& image, bool progressive) {
  jpeg_compress_struct cinfo{};
  jpeg_error_mgr errors;  // exits the test on an error
  cinfo.err = jpeg_std_error(&errors);
  jpeg_create_compress(&cinfo);
  unsigned char* buffer = nullptr;
  unsigned long size = 0;  // NOLINT(google-runtime-int): libjpeg's type
  jpeg_mem_dest(&cinfo, &buffer, &size);
  cinfo.image_width = static_cast<JDIMENSION>(image.width());
  cinfo.image_height = static_cast<JDIMENSION>(image.height());
  cinfo.input_components = 3;
  cinfo.in_color_space = JCS_RGB;
  jpeg_set_defaults(&cinfo);
  if (progressive) jpeg_simple_progression(&cinfo);
  jpeg_start_compress(&cinfo, TRUE);
  while (cinfo.next_scanline < cinfo.image_height) {
    auto* row = const_cast<JSAMPROW>(image.mat().ptr(static_cast<int>(cinfo.next_scanline)));
    jpeg_write_scanlines(&cinfo, &row, 1);
  }
  jpeg_finish_compress(&cinfo);
  const std::vector<uint8_t> bytes(buffer, buffer + size);
  jpeg_destroy_compress(&cinfo);
  std::free(buffer);
  return ToBytes(bytes);
}

FileBytes EncodePng(const RgbImage& image) {
  png_image png{};
  png.version = PNG_IMAGE_VERSION;
  png.width = static_cast<png_uint_32>(image.width());
  png.height = static_cast<png_uint_32>(image.height());
  png.format = PNG_FORMAT_RGB;
  png_alloc_size_t size = PNG_IMAGE_PNG_SIZE_MAX(png);
  FileBytes bytes(size);
  if (png_image_write_to_memory(&png, bytes.data(), &size, 0, image.data(), 0, nullptr) == 0) {
    throw std::runtime_error(png.message);
  }
  bytes.resize(size);
  return bytes;
}

FileBytes EncodeTiff(const RgbImage& image) {
  const std::string path = std::tmpnam(nullptr);  // NOLINT: a test's file
  TIFF* tiff = TIFFOpen(path.c_str(), "w");
  if (tiff == nullptr) throw std::runtime_error("cannot write " + path);
  TIFFSetField(tiff, TIFFTAG_IMAGEWIDTH, image.width());
  TIFFSetField(tiff, TIFFTAG_IMAGELENGTH, image.height());
  TIFFSetField(tiff, TIFFTAG_BITSPERSAMPLE, 8);
  TIFFSetField(tiff, TIFFTAG_SAMPLESPERPIXEL, 3);
  TIFFSetField(tiff, TIFFTAG_PHOTOMETRIC, PHOTOMETRIC_RGB);
  TIFFSetField(tiff, TIFFTAG_PLANARCONFIG, PLANARCONFIG_CONTIG);
  TIFFSetField(tiff, TIFFTAG_COMPRESSION, COMPRESSION_LZW);
  TIFFSetField(tiff, TIFFTAG_ROWSPERSTRIP, 8);
  for (int y = 0; y < image.height(); ++y) {
    TIFFWriteScanline(tiff, const_cast<uint8_t*>(image.mat().ptr(y)), static_cast<uint32_t>(y), 0);
  }
  TIFFClose(tiff);
  FileBytes bytes = ReadTestFile(path);
  std::remove(path.c_str());
  return bytes;
}

FileBytes PngChunk(const std::string& type, const FileBytes& data) {
  FileBytes chunk = ToBytes("0000" + type);
  chunk.insert(chunk.end(), data.begin(), data.end());
  const auto put = [](std::byte* at, uint32_t value) {
    for (int i = 0; i < 4; ++i) at[i] = static_cast<std::byte>(value >> (24 - 8 * i));
  };
  put(chunk.data(), static_cast<uint32_t>(data.size()));
  const auto sum = crc32(0, reinterpret_cast<const Bytef*>(chunk.data()) + 4,
                         static_cast<uInt>(chunk.size() - 4));
  chunk.resize(chunk.size() + 4);
  put(chunk.data() + chunk.size() - 4, static_cast<uint32_t>(sum));
  return chunk;
}

FileBytes WithPngChunk(const FileBytes& png, const FileBytes& chunk) {
  constexpr std::ptrdiff_t kHeaderEnd = 8 + 25;
  FileBytes result = png;
  result.insert(result.begin() + kHeaderEnd, chunk.begin(), chunk.end());
  return result;
}

FileBytes PngHeaderOnly(uint32_t width, uint32_t height) {
  std::vector<uint8_t> header;
  for (const uint32_t side : {width, height}) {
    for (int shift = 24; shift >= 0; shift -= 8)
      header.push_back(static_cast<uint8_t>(side >> shift));
  }
  header.insert(header.end(), {8, 0, 0, 0, 0});  // bits, grey, deflate, filters, not interlaced
  FileBytes file = ToBytes("\x89PNG\r\n\x1A\n");
  for (const FileBytes& chunk : {PngChunk("IHDR", ToBytes(header)), PngChunk("IEND", {})}) {
    file.insert(file.end(), chunk.begin(), chunk.end());
  }
  return file;
}

}  // namespace deepencoder
