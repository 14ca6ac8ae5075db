// Inputs of several lines.
#pragma once

#include <algorithm>
#include <string_view>
#include <vector>

namespace deepencoder::fuzz {

// At least one; an end of line at the text's end begins another.
inline std::vector<std::string_view> LinesOf(std::string_view text) {
  std::vector<std::string_view> lines;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    lines.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return lines;
}

}  // namespace deepencoder::fuzz
