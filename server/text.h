// Text for people.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace deepencoder {

// Least number of single-letter edits from a to b.
size_t EditDistance(std::string_view a, std::string_view b);

// `text` in lines of at most `width` characters, each but the first behind `indent` blanks.
std::string Wrapped(std::string_view text, size_t width, size_t indent);

}  // namespace deepencoder
