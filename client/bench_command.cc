#include "client/bench_command.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/bench_load.h"
#include "client/bench_page.h"
#include "client/bench_plot.h"
#include "client/bench_report.h"
#include "client/bench_result.h"
#include "client/bench_target.h"
#include "client/commands.h"
#include "client/flags.h"
#include "client/server_flags.h"
#include "encoder/weights/atomic_file.h"

namespace deepencoder::client {
namespace {

constexpr int kMaxConcurrency = 4096;
constexpr double kMaxRate = 1e6;
constexpr int kMaxSide = 20'000;  // of a synthetic page, pixels
constexpr int kMaxSharedMiB = 1 << 16;
constexpr char kStandardOutput[] = "-";

struct BenchArguments {
  std::vector<std::string> words;  // images or, with --compare, result files
  ServerFlags server;
  EncodeOptions options;
  std::vector<std::pair<Mode, double>> mix = {{Mode::kGundam, 1.0}};
  std::vector<std::pair<int, int>> sizes = {{1240, 1754}};
  std::vector<double> concurrency, rate;
  LoadSettings load;
  int count = 0, warmup_count = 0, seed = 1, shared_mib = 0;
  absl::Duration connect_timeout = absl::Seconds(5);
  std::string json, plot;
  bool compare = false, help = false;
  double worse = 0;  // per cent; 0: any change is fine
};

const char kUsage[] =
    "deepencoder bench [IMAGE...] [flags]: measures a running server.\n"
    "deepencoder bench --compare A.json B.json: two measurements side by side.\n"
    "\n"
    "  deepencoder bench                                        a made-up page, 1 to 16 at a time\n"
    "  deepencoder bench scans/*.png --concurrency=1,8,32 --json=before.json --plot=before.svg\n"
    "  deepencoder bench scan.png --mode=gundam:3,base:1 --rate=10,20,40 --duration=30s\n"
    "  deepencoder bench --compare before.json after.json --worse=5 --plot=both.svg\n"
    "\n"
    "--concurrency keeps that many requests under way (a closed loop): how fast the server can "
    "go.\n"
    "--rate sends requests at random times, so many a second on average, whatever the server does\n"
    "(an open loop): what users feel at that load. There a latency counts from the moment its\n"
    "request was due, so that a stall is not hidden by the requests it holds back. Above what the\n"
    "server can take, latencies grow with the duration: the numbers then say no more than that.\n"
    "Requests are not retried. Latencies are of good answers; errors are counted by their code.\n"
    "Exit status: 0 done, 1 no image was answered (--compare: worse than --worse allows), 2 wrong\n"
    "usage, 3 no server, or no answer in time.\n"
    "\n";

// A flag whose text `parse` turns into the value of `field`.
template <typename Parse, typename Field>
FlagSet::Setter Into(Parse parse, Field* field) {
  return [=](const std::string& text) {
    auto value = parse(text);
    if (!value.ok()) return value.status();
    *field = *std::move(value);
    return absl::OkStatus();
  };
}

void AddLoadFlags(FlagSet& flags, BenchArguments& args) {
  flags.Add("mode", "MIX",
            "Mode, or several with their shares, such as gundam:3,base:1.\nDefault: gundam.",
            Into(ParseMix, &args.mix));
  flags.Add("size", "WxH,...",
            "Sizes of the made-up pages that are sent if no image is given.\nDefault: 1240x1754.",
            Into(ParseSizes, &args.sizes));
  flags.Add("concurrency", "N,...", "Closed loop: requests under way. Default: 1,2,4,8,16.",
            Into([](const std::string& text) { return ParseNumbers(text, kMaxConcurrency, true); },
                 &args.concurrency));
  flags.Add("rate", "R,...", "Open loop: requests a second.",
            Into([](const std::string& text) { return ParseNumbers(text, kMaxRate, false); },
                 &args.rate));
  flags.AddDuration("duration", "Of each point. Default: 10s, unless there is --count.",
                    &args.load.duration);
  flags.AddInteger("count", "Requests of each point; with --duration the first limit counts.",
                   &args.count, 1, 100'000'000);
  flags.Add("warmup", "DURATION", "Before each point, not counted; may be 0. Default: 2s.",
            [&args](const std::string& text) {
              absl::Duration value;
              if (!absl::ParseDuration(text, &value) || value < absl::ZeroDuration()) {
                return absl::InvalidArgumentError("'" + text + "' is not a duration such as 2s");
              }
              args.load.warmup = value;
              return absl::OkStatus();
            });
  flags.AddInteger("warmup-count", "Warm-up lasts for so many answers, too. Default: 0.",
                   &args.warmup_count, 0, 1'000'000);
  flags.AddInteger("max-outstanding",
                   "Open loop: requests under way at most; what is due then\nwaits. Default: 1000.",
                   &args.load.max_outstanding, 1, 100'000);
  flags.AddInteger("seed", "Of the arrival times and of the order of images. Default: 1.",
                   &args.seed, 0, INT32_MAX);
}

FlagSet BenchFlags(BenchArguments& args) {
  FlagSet flags;
  AddServerFlags(flags, args.server);
  AddLoadFlags(flags, args);
  flags.Add(
      "dtype", "DTYPE", "Of the replies: bf16, fp16 or fp32. Default: bf16.",
      OneOf("bf16, fp16, fp32", ParseDType, [&args](DType dtype) { args.options.dtype = dtype; }));
  flags.Add("max-tiles", "N", "Most tiles in gundam, 4 to 32. Default: the server's.",
            [&args](const std::string& text) {
              const auto tiles = ParseNumbers(text, 32, true);
              if (!tiles.ok()) return tiles.status();
              if (tiles->size() != 1 || tiles->front() < 4) {
                return absl::InvalidArgumentError("'" + text + "' is not a number from 4 to 32");
              }
              args.options.max_tiles = static_cast<int>(tiles->front());
              return absl::OkStatus();
            });
  flags.AddDuration("timeout", "Of each request. Default: 1m.", &args.options.timeout);
  flags.AddDuration("connect-timeout", "For the connection. Default: 5s.", &args.connect_timeout);
  flags.AddInteger("shared-memory",
                   "MiB of memory shared with a server on this host, for images and\nreplies.",
                   &args.shared_mib, 1, kMaxSharedMiB);
  flags.AddText("json", "FILE", "Writes the results; - prints them instead of the tables.",
                &args.json);
  flags.AddText("plot", "FILE.svg", "Draws latency against throughput.", &args.plot);
  flags.AddSwitch("compare", "Reads two results of --json instead of measuring.", &args.compare);
  flags.Add("worse", "PERCENT",
            "With --compare: exit status 1 if throughput fell or p99 grew by\nmore than this.",
            [&args](const std::string& text) {
              const auto numbers = ParseNumbers(text, 1000, false);
              if (!numbers.ok()) return numbers.status();
              args.worse = numbers->front();
              return absl::OkStatus();
            });
  flags.AddSwitch("help", "Print this.", &args.help);
  return flags;
}

absl::Status CheckTogether(BenchArguments& args, bool duration_given) {
  if (args.compare) {
    return args.words.size() == 2 ? absl::OkStatus()
                                  : absl::InvalidArgumentError("--compare needs two result files");
  }
  if (!args.concurrency.empty() && !args.rate.empty()) {
    return absl::InvalidArgumentError("--concurrency and --rate exclude each other");
  }
  if (args.concurrency.empty() && args.rate.empty()) args.concurrency = {1, 2, 4, 8, 16};
  args.load.count = args.count;
  // Warm-up that ends before the first answer has warmed nothing, and leaves a slow server's window
  // empty.
  const int least = args.load.warmup > absl::ZeroDuration() ? 1 : 0;
  args.load.warmup_count = std::max(args.warmup_count, least);
  args.load.seed = static_cast<uint64_t>(args.seed);
  if (args.count > 0 && !duration_given) args.load.duration = absl::ZeroDuration();
  return absl::OkStatus();
}

// What every image is sent as: each of them in each mode.
absl::StatusOr<std::vector<WorkItem>> MakeItems(const BenchArguments& args) {
  std::vector<std::pair<std::string, std::shared_ptr<const Image>>> images;
  for (const std::string& path : args.words) {
    absl::StatusOr<Image> image = ReadImageFile(path);
    if (!image.ok()) return image.status();
    images.emplace_back(std::filesystem::path(path).filename().string(),
                        std::make_shared<const Image>(*std::move(image)));
  }
  if (images.empty()) {
    for (const auto& [width, height] : args.sizes) {
      const absl::StatusOr<std::string> page = SyntheticPage(width, height);
      if (!page.ok()) return page.status();
      Image image;
      image.encoded = *page;
      images.emplace_back(absl::StrCat("page ", width, " x ", height),
                          std::make_shared<const Image>(std::move(image)));
    }
  }
  std::vector<WorkItem> items;
  for (const auto& [mode, weight] : args.mix) {
    for (const auto& [name, image] : images) items.push_back({name, image, mode, weight});
  }
  return items;
}

std::string ImagesText(const std::vector<WorkItem>& items, size_t modes) {
  constexpr size_t kNamed = 3;
  const size_t count = items.size() / modes;
  std::string text = absl::StrCat(count, count == 1 ? " image (" : " images (");
  for (size_t i = 0; i < std::min(count, kNamed); ++i) {
    absl::StrAppend(&text, i == 0 ? "" : ", ", items[i].name);
  }
  return text + (count > kNamed ? ", ...)" : ")");
}

std::string LimitsText(const LoadSettings& load) {
  std::string text = absl::FormatDuration(load.duration);
  if (load.count > 0) {
    text = absl::StrCat(load.count, " images") +
           (load.duration > absl::ZeroDuration() ? " or " + text : "");
  }
  text += " a point after " + absl::FormatDuration(load.warmup) + " of warm-up";
  return load.warmup_count <= 1 ? text : text + absl::StrCat(" and ", load.warmup_count, " images");
}

BenchResult StartResult(const BenchArguments& args, const ModelInfo& info,
                        const std::vector<WorkItem>& items) {
  BenchResult result;
  result.server = args.server.server;
  result.model = info.model;
  result.device = info.device;
  result.version = info.version;
  result.commit = info.commit;
  result.synthetic = info.synthetic;
  for (const auto& [mode, weight] : args.mix) {
    absl::StrAppend(&result.mix, result.mix.empty() ? "" : ", ", std::string(Name(mode)));
    if (args.mix.size() > 1) absl::StrAppend(&result.mix, ":", weight);
  }
  result.images = ImagesText(items, args.mix.size());
  result.dtype = Name(args.options.dtype);
  result.limits = LimitsText(args.load);
  if (args.shared_mib > 0) absl::StrAppend(&result.limits, ", shared memory");
  return result;
}

absl::Status WriteOutputs(const BenchArguments& args, const BenchResult& result) {
  if (args.json == kStandardOutput) {
    std::fputs(ToJson(result).c_str(), stdout);
  } else if (!args.json.empty()) {
    absl::Status status = WriteFileAtomically(args.json, ToJson(result));
    if (!status.ok()) return status;
  }
  if (args.plot.empty()) return absl::OkStatus();
  return WriteFileAtomically(args.plot, LatencyPlot({{"", &result}}));
}

// Measures every point; prints each as it is done, unless `quiet`.
void Measure(const BenchArguments& args, Client& client, const std::vector<WorkItem>& items,
             const Style& style, bool quiet, BenchResult& result) {
  const auto print = [quiet](const std::string& text) {
    if (quiet) return;
    std::fputs(text.c_str(), stdout);
    std::fflush(stdout);
  };
  const bool open = !args.rate.empty();
  print(HeadText(result, style) + PointHeader(open, style));
  for (const double level : open ? args.rate : args.concurrency) {
    Pace pace;
    if (open) {
      pace.rate = level;
    } else {
      pace.concurrency = static_cast<int>(level);
    }
    ServerTarget target(client, args.options);
    result.points.push_back(Evaluate(RunLoad(target, items, pace, args.load), items));
    print(PointLine(result.points.back(), style));
  }
  print(DetailText(result, style));
}

int RunLoadTest(const BenchArguments& args, const Style& style) {
  const absl::StatusOr<std::vector<WorkItem>> items = MakeItems(args);
  if (!items.ok()) {
    PrintError("bench: " + Describe(items.status()));
    return kExitFailed;
  }
  ClientOptions client_options;
  client_options.retry.max_attempts = 1;
  const absl::StatusOr<ClientOptions> options = WithServerFlags(args.server, client_options);
  const auto client = options.ok() ? Client::Create(args.server.server, *options)
                                   : absl::StatusOr<std::unique_ptr<Client>>(options.status());
  absl::Status status = client.ok() ? (*client)->Connect(args.connect_timeout) : client.status();
  const absl::StatusOr<ModelInfo> info =
      status.ok() ? (*client)->Info() : absl::StatusOr<ModelInfo>(status);
  if (!info.ok()) {
    PrintError("bench: " + Describe(info.status()));
    return client.ok() ? ExitStatusOf(info.status()) : kExitUsage;
  }
  if (args.shared_mib > 0) status = (*client)->ShareMemory(uint64_t(args.shared_mib) << 20);
  if (!status.ok()) {
    PrintError("bench: --shared-memory: " + Describe(status));
    return kExitFailed;
  }
  BenchResult result = StartResult(args, *info, *items);
  Measure(args, **client, *items, style, args.json == kStandardOutput, result);
  status = WriteOutputs(args, result);
  if (!status.ok()) {
    PrintError("bench: " + Describe(status));
    return kExitFailed;
  }
  const bool answered = std::any_of(result.points.begin(), result.points.end(),
                                    [](const BenchPoint& point) { return point.images > 0; });
  return answered ? kExitOk : kExitFailed;
}

int RunCompare(const BenchArguments& args, const Style& style) {
  const absl::StatusOr<BenchResult> a = ReadBenchResult(args.words[0]);
  const absl::StatusOr<BenchResult> b = ReadBenchResult(args.words[1]);
  for (const auto* result : {&a, &b}) {
    if (result->ok()) continue;
    PrintError("bench: " + Describe(result->status()));
    return kExitFailed;
  }
  const Comparison comparison = Compare(*a, *b, style);
  std::fputs(comparison.text.c_str(), stdout);
  if (!args.plot.empty()) {
    const absl::Status status =
        WriteFileAtomically(args.plot, LatencyPlot({{"A", &*a}, {"B", &*b}}));
    if (!status.ok()) {
      PrintError("bench: " + Describe(status));
      return kExitFailed;
    }
  }
  if (comparison.points == 0) return kExitFailed;
  const double limit = args.worse / 100;
  const bool worse = comparison.worst_loss > limit || comparison.worst_growth > limit;
  return limit > 0 && worse ? kExitFailed : kExitOk;
}

std::optional<double> ParseNumber(std::string_view text) {
  double value = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || stop != text.data() + text.size() || !std::isfinite(value)) {
    return std::nullopt;
  }
  return value;
}

std::vector<std::string> Parts(const std::string& text, char separator) {
  return absl::StrSplit(text, separator);
}

}  // namespace

absl::StatusOr<std::vector<std::pair<Mode, double>>> ParseMix(const std::string& text) {
  std::vector<std::pair<Mode, double>> mix;
  for (const std::string& part : Parts(text, ',')) {
    const size_t colon = part.find(':');
    const std::optional<Mode> mode = ParseMode(std::string_view(part).substr(0, colon));
    const std::optional<double> weight =
        colon == std::string::npos ? 1.0 : ParseNumber(std::string_view(part).substr(colon + 1));
    if (!mode || !weight || *weight <= 0) {
      return absl::InvalidArgumentError(
          "'" + part + "' is not tiny, small, base, large or gundam, with or without :SHARE");
    }
    mix.emplace_back(*mode, *weight);
  }
  return mix;
}

absl::StatusOr<std::vector<double>> ParseNumbers(const std::string& text, double max, bool whole) {
  std::vector<double> numbers;
  for (const std::string& part : Parts(text, ',')) {
    const std::optional<double> number = ParseNumber(part);
    if (!number || *number <= 0 || *number > max || (whole && *number != std::floor(*number))) {
      return absl::InvalidArgumentError(absl::StrCat(
          "'", part, "' is not a ", whole ? "whole " : "", "number over 0, ", max, " at most"));
    }
    numbers.push_back(*number);
  }
  return numbers;
}

absl::StatusOr<std::vector<std::pair<int, int>>> ParseSizes(const std::string& text) {
  std::vector<std::pair<int, int>> sizes;
  for (const std::string& part : Parts(text, ',')) {
    const std::vector<std::string> sides = Parts(part, 'x');
    const auto width = ParseNumbers(sides.front(), kMaxSide, true);
    const auto height = ParseNumbers(sides.back(), kMaxSide, true);
    if (sides.size() != 2 || !width.ok() || !height.ok()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "'", part, "' is not a size such as 1240x1754, ", kMaxSide, " a side at most"));
    }
    sizes.emplace_back(static_cast<int>(width->front()), static_cast<int>(height->front()));
  }
  return sizes;
}

int RunBench(const std::vector<std::string>& words) {
  BenchArguments args;
  const absl::Duration default_duration = args.load.duration;
  args.load.duration = absl::ZeroDuration();  // 0 until the flag says otherwise
  const FlagSet flags = BenchFlags(args);
  absl::Status status = flags.Parse(words, &args.words);
  if (status.ok() && args.help) {
    std::fputs((kUsage + flags.Help()).c_str(), stdout);
    return kExitOk;
  }
  const bool duration_given = args.load.duration > absl::ZeroDuration();
  if (!duration_given) args.load.duration = default_duration;
  if (status.ok()) status = CheckTogether(args, duration_given);
  if (!status.ok()) {
    PrintError("bench: " + std::string(status.message()));
    return kExitUsage;
  }
  const Style style{isatty(STDOUT_FILENO) != 0};
  return args.compare ? RunCompare(args, style) : RunLoadTest(args, style);
}

}  // namespace deepencoder::client
