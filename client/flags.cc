#include "client/flags.h"

#include <charconv>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"

namespace deepencoder::client {

void FlagSet::Add(std::string name, std::string value, std::string help, Setter set) {
  flags_.push_back({std::move(name), std::move(value), std::move(help), std::move(set)});
}

void FlagSet::AddText(std::string name, std::string value, std::string help, std::string* field) {
  Add(std::move(name), std::move(value), std::move(help), [field](const std::string& text) {
    *field = text;
    return absl::OkStatus();
  });
}

void FlagSet::AddInteger(std::string name, std::string help, int* field, int min, int max) {
  Add(std::move(name), "N", std::move(help), [=](const std::string& text) {
    int value = 0;
    const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || stop != text.data() + text.size() || value < min || value > max) {
      return absl::InvalidArgumentError(
          absl::StrCat("'", text, "' is not a whole number from ", min, " to ", max));
    }
    *field = value;
    return absl::OkStatus();
  });
}

void FlagSet::AddDuration(std::string name, std::string help, absl::Duration* field) {
  Add(std::move(name), "DURATION", std::move(help), [field](const std::string& text) {
    absl::Duration value;
    if (!absl::ParseDuration(text, &value) || value <= absl::ZeroDuration()) {
      return absl::InvalidArgumentError("'" + text +
                                        "' is not a duration over 0, such as 500ms, 30s or 2m");
    }
    *field = value;
    return absl::OkStatus();
  });
}

void FlagSet::AddSwitch(std::string name, std::string help, bool* field) {
  Add(std::move(name), "", std::move(help), [field](const std::string& text) {
    if (text != "true" && text != "false") {
      return absl::InvalidArgumentError("'" + text + "' is not true or false");
    }
    *field = text == "true";
    return absl::OkStatus();
  });
}

const FlagSet::Flag* FlagSet::Find(std::string_view name) const {
  for (const Flag& flag : flags_) {
    if (flag.name == name) return &flag;
  }
  return nullptr;
}

absl::Status FlagSet::Parse(const std::vector<std::string>& args,
                            std::vector<std::string>* words) const {
  for (size_t i = 0; i < args.size(); ++i) {
    const std::string& arg = args[i];
    if (arg == "--") {
      words->insert(words->end(), args.begin() + static_cast<std::ptrdiff_t>(i) + 1, args.end());
      break;
    }
    if (!arg.starts_with("-") || arg == "-") {
      words->push_back(arg);
      continue;
    }
    const size_t equals = arg.find('=');
    const std::string name = arg.substr(0, equals);
    const Flag* flag = name.starts_with("--") ? Find(std::string_view(name).substr(2)) : nullptr;
    if (flag == nullptr) {
      return absl::InvalidArgumentError("unknown flag " + name + "; --help lists the flags");
    }
    std::string value = "true";
    if (equals != std::string::npos) {
      value = arg.substr(equals + 1);
    } else if (!flag->value.empty()) {
      if (i + 1 == args.size()) {
        return absl::InvalidArgumentError(name + " needs a value: " + flag->value);
      }
      value = args[++i];
    }
    const absl::Status status = flag->set(value);
    if (!status.ok()) {
      return absl::InvalidArgumentError(name + ": " + std::string(status.message()));
    }
  }
  return absl::OkStatus();
}

std::string FlagSet::Help() const {
  constexpr size_t kColumn = 30;
  std::string text;
  for (const Flag& flag : flags_) {
    std::string line = "  --" + flag.name + (flag.value.empty() ? "" : "=" + flag.value);
    if (line.size() + 1 > kColumn) line += "\n" + std::string(kColumn, ' ');
    if (line.size() < kColumn) line.resize(kColumn, ' ');
    // Lines after the first begin under the first.
    for (const char c : flag.help) {
      line += c;
      if (c == '\n') line.append(kColumn, ' ');
    }
    text += line + "\n";
  }
  return text;
}

}  // namespace deepencoder::client
