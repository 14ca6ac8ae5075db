#include "server/trace/trace_context.h"

#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace deepencoder {
namespace {

// "00-", 32 digits, "-", 16 digits, "-", 2 digits.
constexpr size_t kTraceAt = 3, kSpanAt = 36, kFlagsAt = 53, kLength = 55;
constexpr uint8_t kSampledFlag = 0x01;
constexpr uint8_t kNoVersion = 0xFF;

int DigitOf(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;  // capitals are not valid
}

bool ParseHex(std::string_view text, uint8_t* bytes) {
  for (size_t i = 0; i < text.size(); i += 2) {
    const int high = DigitOf(text[i]), low = DigitOf(text[i + 1]);
    if (high < 0 || low < 0) return false;
    bytes[i / 2] = static_cast<uint8_t>(high << 4 | low);
  }
  return true;
}

template <size_t size>
bool IsZero(const std::array<uint8_t, size>& id) {
  return std::all_of(id.begin(), id.end(), [](uint8_t byte) { return byte == 0; });
}

template <size_t size>
std::array<uint8_t, size> Random() {
  thread_local std::mt19937_64 generator{std::random_device{}() | uint64_t{std::random_device{}()}
                                                                      << 32};
  std::array<uint8_t, size> id;
  do {
    for (size_t i = 0; i < size; i += sizeof(uint64_t)) {
      const uint64_t word = generator();
      std::memcpy(id.data() + i, &word, sizeof(word));
    }
  } while (IsZero(id));
  return id;
}

}  // namespace

std::optional<TraceContext> ParseTraceparent(std::string_view text) {
  uint8_t version = 0, flags = 0;
  TraceContext context;
  if (text.size() < kLength || text[kTraceAt - 1] != '-' || text[kSpanAt - 1] != '-' ||
      text[kFlagsAt - 1] != '-' || !ParseHex(text.substr(0, 2), &version) ||
      !ParseHex(text.substr(kTraceAt, 32), context.trace_id.data()) ||
      !ParseHex(text.substr(kSpanAt, 16), context.span_id.data()) ||
      !ParseHex(text.substr(kFlagsAt, 2), &flags)) {
    return std::nullopt;
  }
  if (version == kNoVersion || (version == 0 && text.size() != kLength) ||
      (text.size() > kLength && text[kLength] != '-')) {
    return std::nullopt;
  }
  if (IsZero(context.trace_id) || IsZero(context.span_id)) return std::nullopt;
  context.sampled = (flags & kSampledFlag) != 0;
  return context;
}

std::string FormatTraceparent(const TraceContext& context) {
  return "00-" + Hex(context.trace_id) + "-" + Hex(context.span_id) +
         (context.sampled ? "-01" : "-00");
}

std::string ShortenTracestate(std::string_view text, size_t most) {
  if (text.size() <= most) return std::string(text);
  constexpr size_t kLongMember = 128;
  std::vector<std::string> members = absl::StrSplit(std::string(text), ',');
  size_t size = text.size();
  const auto drop = [&](size_t index) {
    size -= std::min(size, members[index].size() + 1);  // and its comma
    members.erase(members.begin() + static_cast<ptrdiff_t>(index));
  };
  for (size_t i = members.size(); i-- > 0 && size > most;) {
    if (members[i].size() > kLongMember) drop(i);
  }
  while (!members.empty() && size > most) drop(members.size() - 1);
  return absl::StrJoin(members, ",");
}

TraceId RandomTraceId() { return Random<std::tuple_size_v<TraceId>>(); }
SpanId RandomSpanId() { return Random<std::tuple_size_v<SpanId>>(); }

}  // namespace deepencoder
