// The server's flags and variables, and the client's flags: a line an argument; lines such as
// DEEPENCODER_MODEL=x are the environment.
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "client/flags.h"
#include "server/options.h"
#include "tests/fuzz/fuzz_target.h"

namespace deepencoder::fuzz {
namespace {

void TryServer(const std::vector<std::string>& args,
               const std::map<std::string, std::string>& environment) {
  std::vector<const char*> pointers;
  for (const std::string& arg : args) pointers.push_back(arg.c_str());
  const absl::StatusOr<Command> command = ParseCommandLine(pointers, [&](const char* name) {
    const auto found = environment.find(name);
    return found == environment.end() ? nullptr : found->second.c_str();
  });
  if (!command.ok()) return RequireRefusal(command.status());
  const ServerOptions& options = command->options;
  Require(options.max_image_bytes > 0 && options.max_image_pixels > 0, "limits are limits");
  Require(!options.batch_buckets.empty() && !options.modes.empty(), "lists are not empty");
  Require(SidesOf(options.modes).size() >= 1, "a mode has a side");
}

void TryClient(const std::vector<std::string>& args) {
  std::string text;
  int number = 1;
  absl::Duration duration;
  bool on = false;
  client::FlagSet flags;
  flags.AddText("server", "ADDRESS", "", &text);
  flags.AddInteger("concurrency", "", &number, 1, 64);
  flags.AddDuration("timeout", "", &duration);
  flags.AddSwitch("json", "", &on);
  std::vector<std::string> words;
  if (const absl::Status status = flags.Parse(args, &words); !status.ok()) RequireRefusal(status);
  Require(number >= 1 && number <= 64, "a number stays in its range");
  Require(words.size() <= args.size(), "words come from the arguments");
}

}  // namespace

void TryInput(const uint8_t* data, size_t size) {
  std::vector<std::string> args;
  std::map<std::string, std::string> environment;
  const std::vector<std::string> lines =
      absl::StrSplit(std::string(AsText(data, size)), '\n', absl::SkipEmpty());
  for (const std::string& line : lines) {
    const size_t equals = line.find('=');
    if (line.starts_with("DEEPENCODER_") && equals != std::string::npos) {
      environment[line.substr(0, equals)] = line.substr(equals + 1);
    } else {
      args.push_back(line);
    }
  }
  TryServer(args, environment);
  TryClient(args);
}

}  // namespace deepencoder::fuzz
