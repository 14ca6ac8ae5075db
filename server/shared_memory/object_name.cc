#include "server/shared_memory/object_name.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace deepencoder {
namespace {

bool IsNameByte(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return absl::ascii_isalnum(byte) || c == '.' || c == '_' || c == '-';
}

// What a client sent, cut and printable.
std::string Quoted(std::string_view text) {
  constexpr size_t kShown = 40;
  const bool cut = text.size() > kShown;
  return absl::StrCat("'", absl::CHexEscape(std::string(text.substr(0, kShown))), cut ? "..." : "",
                      "'");
}

}  // namespace

absl::StatusOr<std::string> ParseObjectName(std::string_view key, std::string_view prefix) {
  std::string_view name = key;
  if (name.starts_with('/')) name.remove_prefix(1);
  const bool plain = !name.empty() && name.size() <= kMaxObjectName &&
                     std::all_of(name.begin(), name.end(), IsNameByte) && name != "." &&
                     name != "..";
  if (!plain) {
    return absl::InvalidArgumentError(
        absl::StrCat("shared memory key ", Quoted(key), ": expected 1 to ", kMaxObjectName,
                     " letters, digits, '.', '_' or '-', with or without one '/' before them"));
  }
  if (!name.starts_with(prefix)) {
    return absl::InvalidArgumentError(absl::StrCat("shared memory key ", Quoted(key),
                                                   ": this server opens only objects whose name "
                                                   "begins with '",
                                                   std::string(prefix),
                                                   "' (its --shared-memory-prefix)"));
  }
  return std::string(name);
}

}  // namespace deepencoder
