// What a Collectable shows, for comparisons.
#pragma once

#include <prometheus/collectable.h>
#include <prometheus/text_serializer.h>

#include <map>
#include <sstream>
#include <string>

namespace deepencoder {

// Samples by `name{label="value",...}`, labels as the serialiser writes them.
inline std::map<std::string, std::string> Samples(const prometheus::Collectable& source) {
  std::map<std::string, std::string> samples;
  std::istringstream text(prometheus::TextSerializer().Serialize(source.Collect()));
  for (std::string line; std::getline(text, line);) {
    if (line.starts_with("#")) continue;
    const size_t blank = line.rfind(' ');
    samples[line.substr(0, blank)] = line.substr(blank + 1);
  }
  return samples;
}

}  // namespace deepencoder
