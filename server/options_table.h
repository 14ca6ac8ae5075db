// The table of options, between its rows (options.cc) and the command line that is read by it.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "server/options.h"

namespace deepencoder {

struct OptionSpec {
  using Setter = std::function<absl::Status(std::string_view text, ServerOptions& options)>;

  const char* group;
  std::string name;
  std::string value;  // what stands for the value in --help; empty for a switch
  std::string default_text;
  std::string help;
  Setter set;

  bool is_switch() const { return value.empty(); }
};

// Rows of options_security.cc.
void AddConnectionOptions(std::vector<OptionSpec>& table);
void AddSecurityOptions(std::vector<OptionSpec>& table);
// Errors: INVALID_ARGUMENT, options of these rows that do not go together.
absl::Status CheckSecurity(const ServerOptions& options);

// In the order of --help.
const std::vector<OptionSpec>& OptionTable();

}  // namespace deepencoder
