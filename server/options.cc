#include "server/options.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "server/text.h"
#include "server/values.h"

namespace deepencoder {
namespace {

using Setter = std::function<absl::Status(std::string_view text, ServerOptions& options)>;

struct OptionSpec {
  const char* group;
  std::string name;
  std::string value;  // what stands for the value in --help; empty for a switch
  std::string default_text;
  std::string help;
  Setter set;

  bool is_switch() const { return value.empty(); }
};

// ------------------------------------------------------------------ setters by type of field

// Stores what `parse` makes of the text.
template <typename Field, typename Parse>
Setter Store(Field ServerOptions::*field, Parse parse) {
  return [field, parse](std::string_view text, ServerOptions& options) {
    auto value = parse(text);
    if (!value.ok()) return value.status();
    options.*field = *std::move(value);
    return absl::OkStatus();
  };
}

Setter Integer(int64_t ServerOptions::*field, int64_t min, int64_t max) {
  return Store(field, [=](std::string_view text) { return ParseInteger(text, min, max); });
}

Setter Bytes(int64_t ServerOptions::*field, int64_t min, int64_t max) {
  return Store(field, [=](std::string_view text) { return ParseBytes(text, min, max); });
}

Setter Duration(absl::Duration ServerOptions::*field, absl::Duration max) {
  return Store(
      field, [=](std::string_view text) { return ParseDuration(text, absl::ZeroDuration(), max); });
}

Setter Switch(bool ServerOptions::*field) { return Store(field, ParseBool); }

Setter Text(std::string ServerOptions::*field) {
  return Store(field, [](std::string_view text) -> absl::StatusOr<std::string> {
    return std::string(text);
  });
}

template <typename Value>
using Choices = std::vector<std::pair<std::string, Value>>;

template <typename Value>
absl::StatusOr<Value> Choose(std::string_view text, const Choices<Value>& choices) {
  std::string names;
  for (const auto& [name, value] : choices) {
    if (text == name) return value;
    absl::StrAppend(&names, names.empty() ? "" : ", ", name);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("'", std::string(text), "' is not one of: ", names));
}

template <typename Value>
Setter Choice(Value ServerOptions::*field, Choices<Value> choices) {
  return Store(field, [choices](std::string_view text) { return Choose(text, choices); });
}

// Comma-separated items, each made by `parse`; `check` looks at the whole.
template <typename Item, typename Parse, typename Check>
Setter ListOf(std::vector<Item> ServerOptions::*field, Parse parse, Check check) {
  return Store(field, [=](std::string_view text) -> absl::StatusOr<std::vector<Item>> {
    auto texts = ParseList(text);
    if (!texts.ok()) return texts.status();
    std::vector<Item> items;
    for (const std::string& item_text : *texts) {
      absl::StatusOr<Item> item = parse(item_text);
      if (!item.ok()) return item.status();
      items.push_back(*std::move(item));
    }
    if (absl::Status status = check(items); !status.ok()) return status;
    return items;
  });
}

Choices<Mode> ModeChoices() {
  Choices<Mode> choices;
  for (const ModeSpec& spec : Modes()) choices.emplace_back(std::string(spec.name), spec.mode);
  return choices;
}

absl::Status CheckDistinct(const std::vector<int>& items) {
  if (std::set<int>(items.begin(), items.end()).size() == items.size()) return absl::OkStatus();
  return absl::InvalidArgumentError("an item is there twice");
}

absl::Status CheckAscending(const std::vector<int>& items) {
  if (items.empty()) return absl::InvalidArgumentError("the list is empty");
  for (size_t i = 1; i < items.size(); ++i) {
    if (items[i] <= items[i - 1]) {
      return absl::InvalidArgumentError("the numbers must ascend, such as 1,2,4,8");
    }
  }
  return absl::OkStatus();
}

template <typename Item>
absl::Status CheckNotEmpty(const std::vector<Item>& items) {
  return items.empty() ? absl::InvalidArgumentError("the list is empty") : absl::OkStatus();
}

// ------------------------------------------------------------------ the table

constexpr int64_t kKiB = 1024, kGiB = int64_t{1} << 30;
constexpr int64_t kMaxReceiveLimit = INT32_MAX - (int64_t{2} << 20);  // gRPC counts bytes in an int

void AddModelOptions(std::vector<OptionSpec>& table) {
  const char* group = "Model";
  table.push_back(
      {group, "model", "DIR", "",
       "Folder of the DeepSeek-OCR checkpoint: config.json and *.safetensors. Required.",
       Text(&ServerOptions::model)});
  table.push_back(
      {group, "modes", "LIST", "tiny,small,base,large,gundam",
       "Modes served, comma-separated. Fewer modes need less memory and start sooner.",
       ListOf(
           &ServerOptions::modes, [](std::string_view text) { return Choose(text, ModeChoices()); },
           CheckNotEmpty<Mode>)});
  table.push_back(
      {group, "max-tiles", "N", absl::StrCat(kDefaultMaxTiles),
       absl::StrCat("Most tiles of a gundam image when the request does not say, ", kMinMaxTiles,
                    " to ", kMaxMaxTiles, ". The language model's must be the same."),
       Integer(&ServerOptions::max_tiles, kMinMaxTiles, kMaxMaxTiles)});
}

void AddAddressOptions(std::vector<OptionSpec>& table) {
  const char* group = "Addresses";
  table.push_back(
      {group, "listen", "LIST", "127.0.0.1:50051",
       "Where gRPC is served, comma-separated: HOST:PORT, [IPV6]:PORT or unix:PATH. "
       "Port 0 takes a free one and logs it. Not authenticated: keep it on loopback, a "
       "unix socket or a trusted network.",
       ListOf(
           &ServerOptions::listen,
           [](std::string_view text) -> absl::StatusOr<std::string> { return std::string(text); },
           CheckNotEmpty<std::string>)});
  table.push_back({group, "metrics-listen", "ADDRESS", "127.0.0.1:9095",
                   "Where Prometheus finds /metrics: HOST:PORT, port 0 takes a free one; empty: "
                   "nowhere.",
                   Text(&ServerOptions::metrics_listen)});
  table.push_back({group, "reflection", "", "true",
                   "Serve gRPC reflection, so that tools such as grpcurl can list the service.",
                   Switch(&ServerOptions::reflection)});
  table.push_back({group, "kserve", "", "true",
                   "Serve KServe's inference protocol (v2) on the same addresses.",
                   Switch(&ServerOptions::kserve)});
  table.push_back({group, "ready-file", "FILE", "",
                   "File to write once serving: a line name=value for each address, with the real "
                   "ports.",
                   Text(&ServerOptions::ready_file)});
}

void AddDeviceOptions(std::vector<OptionSpec>& table) {
  const char* group = "Device";
  table.push_back({group, "device", "auto|cpu|cuda", "auto",
                   "What encodes. auto: CUDA where it works, else the CPU.",
                   Choice<DeviceChoice>(&ServerOptions::device, {{"auto", DeviceChoice::kAuto},
                                                                 {"cpu", DeviceChoice::kCpu},
                                                                 {"cuda", DeviceChoice::kCuda}})});
  table.push_back({group, "devices", "LIST", "all", "GPUs to use: all, or ordinals such as 0,1.",
                   [set = ListOf(
                        &ServerOptions::devices,
                        [](std::string_view text) -> absl::StatusOr<int> {
                          return ParseInteger(text, 0, 1023);
                        },
                        CheckDistinct)](std::string_view text, ServerOptions& options) {
                     return set(text == "all" ? "" : text, options);
                   }});
  table.push_back(
      {group, "compute-dtype", "auto|bf16|fp16|fp32", "auto",
       "Type the encoder computes in. CUDA: bf16 or fp16; CPU: bf16 or fp32. auto: "
       "bf16, and fp32 on a CPU without AMX.",
       Choice<std::optional<DType>>(&ServerOptions::compute_dtype, {{"auto", std::nullopt},
                                                                    {"bf16", DType::kBf16},
                                                                    {"fp16", DType::kFp16},
                                                                    {"fp32", DType::kFp32}})});
  table.push_back({group, "threads", "N", "0", "Threads of a CPU slot; 0: all cores.",
                   Integer(&ServerOptions::threads, 0, 1024)});
  table.push_back({group, "slots", "N", "0",
                   "Batches that run at once on a device; 0: 2 on a GPU, 1 on the CPU.",
                   Integer(&ServerOptions::slots, 0, 64)});
  table.push_back(
      {group, "batch-buckets", "LIST", "1,2,4,8,16,32",
       "Batch sizes that are prepared (and captured as CUDA graphs), ascending. A "
       "batch is padded to the next one; the last is the largest.",
       ListOf(
           &ServerOptions::batch_buckets,
           [](std::string_view text) -> absl::StatusOr<int> { return ParseInteger(text, 1, 1024); },
           CheckAscending)});
  table.push_back({group, "max-batch-delay", "DURATION", "0",
                   "How long a view may wait for company while a slot is idle. 0: an idle slot "
                   "takes what is there.",
                   Duration(&ServerOptions::max_batch_delay, absl::Seconds(10))});
  table.push_back({group, "graphs", "", "true",
                   "Capture CUDA graphs at start for every view side and batch bucket.",
                   Switch(&ServerOptions::graphs)});
}

void AddImageOptions(std::vector<OptionSpec>& table) {
  const char* group = "Images";
  table.push_back({group, "decode-threads", "N", "0",
                   "Threads that decode images and make views; 0: all cores.",
                   Integer(&ServerOptions::decode_threads, 0, 1024)});
  table.push_back(
      {group, "decode-sandbox", "process|required|off", "process",
       "Decode in processes that can open no file, connect nowhere and start nothing, one for each "
       "decode thread. process: in the server's own where the system refuses them, with a warning; "
       "required: do not start then; off: in the server's own.",
       Choice<DecodeSandbox>(&ServerOptions::decode_sandbox,
                             {{"process", DecodeSandbox::kProcess},
                              {"required", DecodeSandbox::kRequired},
                              {"off", DecodeSandbox::kOff}})});
  table.push_back({group, "decode-timeout", "DURATION", "30s",
                   "CPU time that decoding an image may take; only with a decode sandbox.",
                   Store(&ServerOptions::decode_timeout, [](std::string_view text) {
                     return ParseDuration(text, absl::Milliseconds(1), absl::Hours(1));
                   })});
  table.push_back({group, "max-image-bytes", "SIZE", "32MiB",
                   "Largest image file, or raw RGB, of a request.",
                   Bytes(&ServerOptions::max_image_bytes, kKiB, kMaxReceiveLimit)});
  table.push_back({group, "max-image-pixels", "N", "178956970",
                   "Most pixels (width x height) of an image, read from the file's header.",
                   Integer(&ServerOptions::max_image_pixels, 1, int64_t{1} << 40)});
  table.push_back({group, "alpha", "drop|white", "drop",
                   "Transparency when the request does not say. drop: colour as stored, as the "
                   "reference does; white: composited on white.",
                   Choice<AlphaPolicy>(&ServerOptions::alpha, {{"drop", AlphaPolicy::kDrop},
                                                               {"white", AlphaPolicy::kWhite}})});
  table.push_back(
      {group, "gray16", "high_byte|saturate", "high_byte",
       "16-bit greyscale when the request does not say. saturate: min(v, 255), as the "
       "reference does, which turns most scans white.",
       Choice<Gray16Policy>(&ServerOptions::gray16, {{"high_byte", Gray16Policy::kHighByte},
                                                     {"saturate", Gray16Policy::kSaturate}})});
}

void AddBoundOptions(std::vector<OptionSpec>& table) {
  const char* group = "Bounds (what is over them is refused with RESOURCE_EXHAUSTED)";
  table.push_back({group, "max-images-in-flight", "N", "1024",
                   "Most images accepted and not yet answered.",
                   Integer(&ServerOptions::max_images_in_flight, 1, 1 << 20)});
  table.push_back({group, "max-views-in-flight", "N", "4096",
                   "Most views (a tile is one) of accepted images.",
                   Integer(&ServerOptions::max_views_in_flight, kMaxMaxTiles + 1, 1 << 24)});
  table.push_back({group, "max-bytes-in-flight", "SIZE", "4GiB",
                   "Most bytes of accepted images: files, what decoding them may take, views and "
                   "replies.",
                   Bytes(&ServerOptions::max_bytes_in_flight, kKiB * kKiB, 1024 * kGiB)});
  table.push_back({group, "stream-window", "N", "64",
                   "Images in flight of one EncodeImages call; more are not read from the stream.",
                   Integer(&ServerOptions::stream_window, 1, 1 << 16)});
  table.push_back({group, "grpc-memory", "SIZE", "1GiB",
                   "Memory that gRPC may use for messages in transit.",
                   Bytes(&ServerOptions::grpc_memory, 16 * kKiB * kKiB, 1024 * kGiB)});
  table.push_back({group, "cache-bytes", "SIZE", "0",
                   "Results kept for images that come again; 0: none.",
                   Bytes(&ServerOptions::cache_bytes, 0, 1024 * kGiB)});
}

void AddLifeOptions(std::vector<OptionSpec>& table) {
  const char* group = "Start, stop, log";
  table.push_back({group, "warm-up", "", "true",
                   "Encode a synthetic image of every view side before saying SERVING.",
                   Switch(&ServerOptions::warm_up)});
  table.push_back({group, "drain-timeout", "DURATION", "30s",
                   "After SIGTERM or SIGINT, how long accepted images may take to finish. A second "
                   "signal exits at once.",
                   Duration(&ServerOptions::drain_timeout, absl::Hours(24))});
  table.push_back({group, "log-level", "debug|info|warning|error", "info",
                   "Least level that is logged. debug has a line for each image.",
                   Choice<LogLevel>(&ServerOptions::log_level, {{"debug", LogLevel::kDebug},
                                                                {"info", LogLevel::kInfo},
                                                                {"warning", LogLevel::kWarning},
                                                                {"error", LogLevel::kError}})});
  table.push_back({group, "log-format", "text|json", "text", "Log lines on standard error.",
                   Choice<LogFormat>(&ServerOptions::log_format,
                                     {{"text", LogFormat::kText}, {"json", LogFormat::kJson}})});
}

const std::vector<OptionSpec>& Table() {
  static const std::vector<OptionSpec> table = [] {
    std::vector<OptionSpec> rows;
    AddModelOptions(rows);
    AddAddressOptions(rows);
    AddDeviceOptions(rows);
    AddImageOptions(rows);
    AddBoundOptions(rows);
    AddLifeOptions(rows);
    return rows;
  }();
  return table;
}

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
  for (const OptionSpec& option : Table()) {
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
  for (const OptionSpec& option : Table()) consider(option.name);
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
  for (const OptionSpec& option : Table()) {
    // A default that its own setter refuses would be caught by the first test of this function.
    option.set(option.default_text, options).IgnoreError();
  }
  return options;
}

absl::StatusOr<Command> ParseCommandLine(std::span<const char* const> args,
                                         const Environment& environment) {
  Command command;
  command.options = DefaultOptions();
  for (const OptionSpec& option : Table()) {
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
  return command;
}

std::vector<int> SidesOf(std::span<const Mode> modes) {
  std::set<int> sides;
  for (Mode mode : modes) {
    const ModeSpec& spec = SpecOf(mode);
    sides.insert(spec.base_side);
    if (spec.tile_side != 0) sides.insert(spec.tile_side);
  }
  return {sides.begin(), sides.end()};
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
  for (const OptionSpec& option : Table()) {
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
  for (const OptionSpec& option : Table()) {
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
