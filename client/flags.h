// The flags of a command: declared once, parsed and explained from that.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace deepencoder::client {

class FlagSet {
 public:
  using Setter = std::function<absl::Status(const std::string& text)>;

  // --name=VALUE or --name VALUE.
  void Add(std::string name, std::string value, std::string help, Setter set);
  void AddText(std::string name, std::string value, std::string help, std::string* field);
  void AddInteger(std::string name, std::string help, int* field, int min, int max);
  void AddDuration(std::string name, std::string help, absl::Duration* field);
  void AddSwitch(std::string name, std::string help, bool* field);

  // Sets the fields and gives the words that are no flags to `words`; what follows "--" is no flag.
  // Errors: INVALID_ARGUMENT naming the flag.
  absl::Status Parse(const std::vector<std::string>& args, std::vector<std::string>* words) const;

  // A line or more for each flag, for --help.
  std::string Help() const;

 private:
  struct Flag {
    std::string name, value, help;  // value empty: a switch
    Setter set;
  };
  const Flag* Find(std::string_view name) const;
  std::vector<Flag> flags_;
};

// Calls `use` with the value that `parse` (text -> optional) makes of a text; the error lists `known`.
template <typename Parse, typename Use>
FlagSet::Setter OneOf(const std::string& known, Parse parse, Use use) {
  return [=](const std::string& text) {
    const auto value = parse(text);
    if (!value) return absl::InvalidArgumentError("'" + text + "' is not one of: " + known);
    use(*value);
    return absl::OkStatus();
  };
}

}  // namespace deepencoder::client
