#include "encoder/image/zstd_window.h"

#include <algorithm>
#include <optional>

namespace deepencoder {
namespace {

constexpr uint32_t kMagic = 0xFD2FB528, kOldMagicMask = 0xFFFFFFF8, kOldMagic = 0xFD2FB520;
constexpr uint32_t kSkippableMask = 0xFFFFFFF0, kSkippable = 0x184D2A50;

struct Frame {
  uint64_t window;
  size_t bytes;
};

std::optional<uint32_t> Read(Bytes bytes, size_t at, size_t size) {
  return ReadInteger(bytes, at, size, std::endian::little);
}

// The size field of the header: 1, 2, 4 or 8 bytes, by `flag`.
std::optional<uint64_t> ContentSize(Bytes frame, size_t at, uint32_t flag) {
  if (flag == 1) {
    const auto size = Read(frame, at, 2);
    return size ? std::optional<uint64_t>(*size + 256) : std::nullopt;
  }
  const auto low = Read(frame, at, flag == 0 ? 1 : 4);
  if (!low || flag < 3) return low;
  const auto high = Read(frame, at + 4, 4);
  return high ? std::optional<uint64_t>(uint64_t{*high} << 32 | *low) : std::nullopt;
}

// Bytes of the blocks and the checksum behind a header of `at` bytes; what is there if it ends early.
size_t EndOfBlocks(Bytes frame, size_t at, bool checksum) {
  constexpr size_t kHeader = 3;
  constexpr uint32_t kRle = 1;
  while (const auto header = Read(frame, at, kHeader)) {
    const bool last = (*header & 1) != 0;
    const size_t size = (*header >> 1 & 3) == kRle ? 1 : *header >> 3;
    at += kHeader + size;
    if (last) return at + (checksum ? 4 : 0);
  }
  return frame.size();
}

// A frame whose magic number has been seen; nullopt if its header is broken.
std::optional<Frame> ReadFrame(Bytes frame) {
  constexpr size_t kDictionaryBytes[] = {0, 1, 2, 4}, kSizeBytes[] = {0, 2, 4, 8};
  const auto descriptor = Read(frame, 4, 1);
  if (!descriptor) return std::nullopt;
  const bool single = (*descriptor & 0x20) != 0;  // no window field: the content is the window
  const uint32_t flag = *descriptor >> 6;
  size_t at = 5;
  uint64_t window = 0;
  if (!single) {
    const auto field = Read(frame, at++, 1);
    if (!field) return std::nullopt;
    const uint64_t base = uint64_t{1} << (10 + (*field >> 3));
    window = base + base / 8 * (*field & 7);
  }
  at += kDictionaryBytes[*descriptor & 3];
  if (single) {
    const auto content = ContentSize(frame, at, flag);
    if (!content) return std::nullopt;
    window = *content;
  }
  at += single && flag == 0 ? 1 : kSizeBytes[flag];
  return Frame{window, EndOfBlocks(frame, at, (*descriptor & 4) != 0)};
}

}  // namespace

uint64_t LargestZstdWindow(Bytes stream) {
  uint64_t largest = 0;
  for (bool first = true; !stream.empty(); first = false) {
    const uint32_t magic = Read(stream, 0, 4).value_or(0);
    if (magic != kMagic && (magic & kOldMagicMask) == kOldMagic) return UINT64_MAX;
    std::optional<Frame> frame;
    if (magic == kMagic) {
      frame = ReadFrame(stream);
    } else if ((magic & kSkippableMask) == kSkippable) {
      frame = Frame{0, size_t{8} + Read(stream, 4, 4).value_or(0)};
    }
    if (!frame) return first ? UINT64_MAX : largest;
    largest = std::max(largest, frame->window);
    stream = Slice(stream, frame->bytes);
  }
  return largest;
}

}  // namespace deepencoder
