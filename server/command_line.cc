// Flags and environment variables, help and documentation, all by the table of options.
#include <cctype>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "server/options.h"
#include "server/options_table.h"
#include "server/text.h"
#include "server/values.h"

namespace deepencoder {
namespace {

struct ActionSpec {
  const char* name;
  Command::Action action;
  const char* help;
};
constexpr ActionSpec kActions[] = {
    {"help", Command::Action::kHelp, "Print this and exit."},
    {"version", Command::Action::kVersion, "Print version and source revision and exit."},
    {"dump-metrics-docs", Command::Action::kMetricsDocs, "Print the metrics as Markdown and exit."},
    {"dump-options-docs", Command::Action::kOptionsDocs, "Print the options as Markdown and exit."},
};

std::string VariableOf(const OptionSpec& option) {
  std::string name = "DEEPENCODER_" + option.name;
  for (char& c : name) c = c == '-' ? '_' : static_cast<char>(std::toupper(c));
  return name;
}

const OptionSpec* Find(std::string_view name) {
  for (const OptionSpec& option : OptionTable()) {
    if (option.name == name) return &option;
  }
  return nullptr;
}

// ------------------------------------------------------------------ parsing

absl::Status In(const std::string& where, const absl::Status& status) {
  return absl::InvalidArgumentError(absl::StrCat(where, ": ", std::string(status.message())));
}

absl::Status UnknownFlag(std::string_view name) {
  std::string_view nearest;
  size_t best = 4;  // further away is no help
  const auto consider = [&](std::string_view known) {
    const size_t distance = EditDistance(name, known);
    if (distance >= best) return;
    best = distance;
    nearest = known;
  };
  for (const OptionSpec& option : OptionTable()) consider(option.name);
  for (const ActionSpec& action : kActions) consider(action.name);
  std::string text = "unknown flag --" + std::string(name);
  if (!nearest.empty()) text += " (did you mean --" + std::string(nearest) + "?)";
  return absl::InvalidArgumentError(text + "; --help lists the flags");
}

// One argument, and the next one where it is this flag's value.
class ArgumentReader {
 public:
  explicit ArgumentReader(std::span<const char* const> args) : args_(args) {}

  absl::Status ReadAll(Command& command) {
    while (next_ < args_.size()) {
      if (absl::Status status = ReadOne(command); !status.ok()) return status;
    }
    return absl::OkStatus();
  }

 private:
  absl::Status ReadOne(Command& command) {
    std::string_view argument = args_[next_++];
    if (argument == "-h") argument = "--help";
    if (!argument.starts_with("--") || argument.size() == 2) {
      return absl::InvalidArgumentError("unexpected argument '" + std::string(argument) +
                                        "': options are given as --name=value");
    }
    argument.remove_prefix(2);
    const size_t equals = argument.find('=');
    const std::string_view name = argument.substr(0, equals);
    std::optional<std::string_view> value;
    if (equals != std::string_view::npos) value = argument.substr(equals + 1);

    for (const ActionSpec& action : kActions) {
      if (name == action.name && !value) {
        command.action = action.action;
        return absl::OkStatus();
      }
    }
    if (name.starts_with("no-") && !value) {
      const OptionSpec* negated = Find(name.substr(3));
      if (negated != nullptr && negated->is_switch()) return negated->set("false", command.options);
    }
    const OptionSpec* option = Find(name);
    if (option == nullptr) return UnknownFlag(name);
    if (!value && option->is_switch()) value = "true";
    if (!value) {
      if (next_ == args_.size()) {
        return absl::InvalidArgumentError("--" + option->name + " needs a value: " + option->value);
      }
      value = args_[next_++];
    }
    const absl::Status status = option->set(*value, command.options);
    return status.ok() ? status : In("--" + option->name, status);
  }

  std::span<const char* const> args_;
  size_t next_ = 0;
};

}  // namespace

ServerOptions DefaultOptions() {
  ServerOptions options;
  for (const OptionSpec& option : OptionTable()) {
    // A default that its own setter refuses would be caught by the first test of this function.
    option.set(option.default_text, options).IgnoreError();
  }
  return options;
}

absl::StatusOr<Command> ParseCommandLine(std::span<const char* const> args,
                                         const Environment& environment) {
  Command command;
  command.options = DefaultOptions();
  for (const OptionSpec& option : OptionTable()) {
    const std::string variable = VariableOf(option);
    const char* value = environment(variable.c_str());
    if (value == nullptr) continue;
    const absl::Status status = option.set(value, command.options);
    if (!status.ok()) return In("environment variable " + variable, status);
  }
  if (absl::Status status = ArgumentReader(args).ReadAll(command); !status.ok()) return status;
  if (command.action == Command::Action::kServe && command.options.model.empty()) {
    return absl::InvalidArgumentError(
        "--model=DIR is required: the folder of a DeepSeek-OCR checkpoint ('deepencoder checkpoint "
        "synthesize DIR' makes one to try things with)");
  }
  if (absl::Status status = CheckSecurity(command.options); !status.ok()) return status;
  return command;
}

// ------------------------------------------------------------------ texts

namespace {

std::string Usage(const OptionSpec& option) {
  return option.is_switch() ? "--[no-]" + option.name : "--" + option.name + "=" + option.value;
}

}  // namespace

std::string HelpText() {
  constexpr size_t kIndent = 6, kWidth = 90;
  std::string text =
      "deepencoder-server: turns images into DeepSeek-OCR embeddings, over gRPC.\n\n"
      "  deepencoder-server --model=DIR [options]\n\n"
      "Each option can also be set by the environment variable shown; a flag wins over it.\n"
      "Sizes: 512KiB, 32MiB, 2GiB. Durations: 250us, 5ms, 30s, 2m.\n"
      "Exit status: 0 after a clean stop, 1 if it could not start or work was lost at the stop,\n"
      "2 for a wrong option.\n";
  std::string group;
  for (const OptionSpec& option : OptionTable()) {
    if (group != option.group) {
      group = option.group;
      absl::StrAppend(&text, "\n", group, ":\n");
    }
    std::string line = option.help;
    if (!option.default_text.empty()) line += " Default: " + option.default_text + ".";
    absl::StrAppend(&text, "  ", Usage(option), "  [", VariableOf(option), "]\n",
                    std::string(kIndent, ' '), Wrapped(line, kWidth, kIndent), "\n");
  }
  text += "\nInstead of serving:\n";
  for (const ActionSpec& action : kActions) {
    absl::StrAppend(&text, "  --", action.name, "\n", std::string(kIndent, ' '), action.help, "\n");
  }
  return text;
}

std::string OptionsMarkdown() {
  std::string text = "| flag | variable | default | meaning |\n|---|---|---|---|\n";
  for (const OptionSpec& option : OptionTable()) {
    std::string usage = Usage(option);
    for (size_t at = 0; (at = usage.find('|', at)) != std::string::npos; at += 2) {
      usage.insert(at, "\\");
    }
    absl::StrAppend(&text, "| `", usage, "` | `", VariableOf(option), "` | ", option.default_text,
                    " | ", option.help, " |\n");
  }
  return text;
}

}  // namespace deepencoder
