// The first directory of a TIFF file, read here and by no library, before the file is handed to one: the size it
// states, and what libtiff takes for its entries' values. TIFF 6.0, and BigTIFF.
#include <algorithm>
#include <array>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "encoder/image/formats.h"

namespace deepencoder {
namespace {

absl::Status Broken(const std::string& why) {
  return absl::InvalidArgumentError(absl::StrCat("broken or truncated TIFF file: ", why));
}

// How the fields are written.
struct Fields {
  Bytes file;
  std::endian order;
  bool big;
  std::optional<uint32_t> Read(size_t at, size_t size) const {
    return ReadInteger(file, at, size, order);
  }
  // 8 bytes in BigTIFF, else 4. What is past 2^32 lies in no file here.
  std::optional<uint64_t> Offset(size_t at) const {
    if (!big) return Read(at, 4);
    const bool high_first = order == std::endian::big;
    const auto high = Read(high_first ? at : at + 4, 4);
    const auto low = Read(high_first ? at + 4 : at, 4);
    if (!high || !low) return std::nullopt;
    return uint64_t{*high} << 32 | *low;
  }
};

Fields FieldsOf(Bytes file) {
  constexpr uint32_t kBigVersion = 43;
  Fields fields = {file, StartsWith(file, "MM") ? std::endian::big : std::endian::little, false};
  fields.big = fields.Read(2, 2) == kBigVersion;
  return fields;
}

struct Entry {
  uint32_t tag, type;
  uint64_t count;   // values
  size_t value_at;  // where they lie, or their offset
};

// The one number in an entry: BYTE, SHORT, LONG or LONG8.
std::optional<uint64_t> NumberOf(const Entry& entry, const Fields& fields) {
  constexpr uint32_t kByte = 1, kShort = 3, kLong = 4, kLong8 = 16;
  if (entry.count != 1) return std::nullopt;
  switch (entry.type) {
    case kByte:
      return fields.Read(entry.value_at, 1);
    case kShort:
      return fields.Read(entry.value_at, 2);
    case kLong:
      return fields.Read(entry.value_at, 4);
    case kLong8:
      return fields.big ? fields.Offset(entry.value_at) : std::nullopt;
    default:
      return std::nullopt;
  }
}

// Of a value, by type; 0 where libtiff knows no such type and leaves the entry out.
uint64_t ValueBytes(uint32_t type) {
  constexpr std::array<uint8_t, 19> kBytes = {0, 1, 1, 2, 4, 8, 1, 1, 2, 4,
                                              8, 4, 8, 4, 0, 0, 8, 8, 8};
  return type < kBytes.size() ? kBytes[type] : 0;
}

// Bytes of an entry's values; 0 where they lie in the entry itself. UINT64_MAX: more than any file has.
uint64_t OuterBytes(const Entry& entry, const Fields& fields) {
  const uint64_t each = ValueBytes(entry.type);
  if (each == 0) return 0;
  if (entry.count > UINT64_MAX / each) return UINT64_MAX;
  return entry.count * each > (fields.big ? 8 : 4) ? entry.count * each : 0;
}

// The same, if all of them lie in the file; else 0: libtiff finds that out while it reads, and leaves them out.
uint64_t StoredBytes(const Entry& entry, const Fields& fields) {
  const uint64_t bytes = OuterBytes(entry, fields), most = fields.file.size();
  const auto offset = fields.Offset(entry.value_at);
  return bytes <= most && offset && *offset <= most - bytes ? bytes : 0;
}

// Calls see(entry) for each entry of the first directory that lies in the file.
template <typename See>
absl::Status ForEachEntry(const Fields& fields, See see) {
  constexpr uint64_t kMostEntries = 65535;  // TIFF 6.0's own, which libtiff asks of BigTIFF too
  const auto directory = fields.Offset(fields.big ? 8 : 4);
  if (!directory || *directory >= fields.file.size()) return Broken("no directory");
  const size_t count_bytes = fields.big ? 8 : 2, entry_bytes = fields.big ? 20 : 12;
  std::optional<uint64_t> count = fields.Read(*directory, 2);
  if (fields.big) count = fields.Offset(*directory);
  if (!count) return Broken("no directory");
  if (*count > kMostEntries) return Broken(absl::StrCat("a directory of ", *count, " entries"));
  for (uint64_t i = 0; i < *count; ++i) {
    const size_t at = *directory + count_bytes + i * entry_bytes;
    if (at > fields.file.size() || fields.file.size() - at < entry_bytes) break;
    see(Entry{*fields.Read(at, 2), *fields.Read(at + 2, 2), *fields.Offset(at + 4),
              at + (fields.big ? 12 : 8)});
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<StoredSize> ReadTiffSize(Bytes file) {
  constexpr uint32_t kWidth = 256, kLength = 257;
  const Fields fields = FieldsOf(file);
  std::optional<uint64_t> width, height;
  uint64_t stored = 0;
  const absl::Status walked = ForEachEntry(fields, [&](const Entry& entry) {
    if (entry.tag == kWidth && !width) width = NumberOf(entry, fields);
    if (entry.tag == kLength && !height) height = NumberOf(entry, fields);
    stored += StoredBytes(entry, fields);
  });
  if (!walked.ok()) return walked;
  if (!width || !height) return Broken("no width or height");
  // Entries that share their bytes, of which each would be held once more. Some encoders let two resolutions
  // share eight bytes: an entry's own are more than that.
  if (stored > file.size()) {
    return Broken(
        absl::StrCat("its directory names ", stored, " bytes of a file of ", file.size()));
  }
  // Either may be past any limit; as a signed number it must stay so.
  constexpr uint64_t kMost = INT64_MAX;
  return StoredSize{static_cast<int64_t>(std::min(*width, kMost)),
                    static_cast<int64_t>(std::min(*height, kMost))};
}

size_t TiffTableBytes(Bytes file, const StoredSize&) {
  // libtiff holds what an entry is made of (the entry, and a tag that it knows nothing of) and its values; those it is
  // at are there as read and as set, too. Numbers that it widens are few: strips, or 65,535 of another tag.
  constexpr uint64_t kEntryBytes = 256;
  const Fields fields = FieldsOf(file);
  uint64_t held = 0, largest = 0;
  const absl::Status walked = ForEachEntry(fields, [&](const Entry& entry) {
    held += kEntryBytes + StoredBytes(entry, fields);
    // Not only what is stored: of values that are not all there it reads the beginning.
    largest = std::max(largest, std::min(OuterBytes(entry, fields), MaxTiffAllocation(file)));
  });
  if (!walked.ok()) return 0;  // and nothing is decoded
  // Besides, the strip or tile it is at as it is stored, which may be all of the file.
  return held + 2 * largest + file.size();
}

uint64_t MaxTiffAllocation(Bytes file) {
  return std::max(uint64_t{64} << 20, uint64_t{2} * file.size());
}

}  // namespace deepencoder
