// The lossless bitstream of RFC 9649, sections 3 to 6.
#include "tests/encoder/image/webp_groups.h"

#include <array>
#include <cstdint>

namespace deepencoder {
namespace {

constexpr int kBlocksPerRow = 256, kBlock = 4, kLiterals = 256, kLengthPrefixes = 24;

class BitWriter {
 public:
  void Write(uint32_t value, int bits) {  // lowest bit first, at most 32
    for (int i = 0; i < bits; ++i, ++bits_) {
      if (bits_ % 8 == 0) bytes_.push_back(std::byte{0});
      if ((value >> i & 1) != 0) bytes_.back() |= std::byte{1} << bits_ % 8;
    }
  }
  FileBytes Bytes() const { return bytes_; }

 private:
  FileBytes bytes_;
  size_t bits_ = 0;
};

// Code of one symbol, 0, which then takes no bits.
void WriteSingleSymbol(BitWriter& out) {
  out.Write(0b0001, 4);
}  // simple, one symbol, of one bit: 0

// Code of 8 bits for each literal; none for the `others` symbols behind them.
void WriteEightBitCode(BitWriter& out, int others) {
  // Order of the lengths' own code: 17, 18, 0, 1, ..., 5, 16, 6, 7, 8. Lengths 0 and 8 get a bit each.
  constexpr std::array<int, 12> kLengths{0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1};
  out.Write(0, 1);  // not simple
  out.Write(kLengths.size() - 4, 4);
  for (const int length : kLengths) out.Write(length, 3);
  out.Write(0, 1);  // as many symbols as the alphabet has
  for (int i = 0; i < kLiterals; ++i) out.Write(1, 1);
  for (int i = 0; i < others; ++i) out.Write(0, 1);
}

void WriteEightBitSymbol(BitWriter& out, int symbol) {  // codes have their highest bit first
  for (int bit = 7; bit >= 0; --bit) out.Write(symbol >> bit & 1, 1);
}

// Which group each block has: its number, in green and red.
void WriteEntropyImage(BitWriter& out, int groups) {
  out.Write(0, 1);                                     // no color cache
  WriteEightBitCode(out, kLengthPrefixes);             // green
  WriteEightBitCode(out, 0);                           // red
  for (int i = 0; i < 3; ++i) WriteSingleSymbol(out);  // blue, alpha, distance
  for (int group = 0; group < groups; ++group) {
    WriteEightBitSymbol(out, group % 256);
    WriteEightBitSymbol(out, group / 256);
  }
}

FileBytes Little(size_t value, int bytes) {
  BitWriter out;
  out.Write(static_cast<uint32_t>(value), 8 * bytes);
  return out.Bytes();
}

}  // namespace

FileBytes WebpOfGroups(int groups) {
  BitWriter out;
  out.Write(0x2F, 8);  // signature
  out.Write(kBlocksPerRow * kBlock - 1, 14);
  out.Write(groups / kBlocksPerRow * kBlock - 1, 14);
  out.Write(0, 1 + 3);  // no alpha, version
  out.Write(0, 1);      // no transform
  out.Write(0, 1);      // no color cache
  out.Write(1, 1);      // an entropy image
  out.Write(0, 3);      // of a pixel for 4 x 4
  WriteEntropyImage(out, groups);
  for (int i = 0; i < 5 * groups; ++i) WriteSingleSymbol(out);
  for (int i = 0; i < 2; ++i) out.Write(0, 32);  // pixels take no bits; readers look ahead
  FileBytes bits = out.Bytes();
  if (bits.size() % 2 != 0) bits.push_back(std::byte{0});

  FileBytes file;
  const auto append = [&file](const FileBytes& part) {
    file.insert(file.end(), part.begin(), part.end());
  };
  append(ToBytes(std::string("RIFF")));
  append(Little(bits.size() + 12, 4));
  append(ToBytes(std::string("WEBPVP8L")));
  append(Little(bits.size(), 4));
  append(bits);
  return file;
}

}  // namespace deepencoder
