// `deepencoder encode`.
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/call_metadata.h"
#include "client/client.h"
#include "client/commands.h"
#include "client/flags.h"
#include "client/progress.h"
#include "client/server_flags.h"
#include "client/tensor_file.h"

namespace deepencoder::client {
namespace {

constexpr char kNpy[] = ".npy", kSafetensors[] = ".safetensors";

struct EncodeArguments {
  std::vector<std::string> images;
  ServerFlags server;
  EncodeOptions options;
  bool dtype_given = false;
  std::string out, out_dir, format = "safetensors";
  int concurrency = 8;
  absl::Duration connect_timeout = absl::Seconds(5);
  bool json = false, quiet = false, help = false;
};

const char kUsage[] =
    "deepencoder encode IMAGE... [flags]: embeds images with a running server.\n"
    "\n"
    "  deepencoder encode page.png\n"
    "  deepencoder encode page.png --mode=base --out=page.npy\n"
    "  deepencoder encode scans/*.jpg --out-dir=embeddings --concurrency=16\n"
    "\n"
    "For each image it prints the shape, the tile grid and where the time went in the server. "
    "Images that\n"
    "fail are named on standard error and do not stop the others.\n"
    "Exit status: 0 all done, 1 an image failed or was not written, 2 wrong usage, 3 no server, "
    "or\n"
    "no answer in time.\n"
    "\n";

FlagSet EncodeFlags(EncodeArguments& args) {
  FlagSet flags;
  EncodeOptions& options = args.options;
  AddServerFlags(flags, args.server);
  flags.Add("mode", "MODE",
            "tiny (73 rows), small (111), base (273), large (421),\n"
            "or gundam (273, and tiles unless the image is small). Default: gundam.",
            OneOf("tiny, small, base, large, gundam", ParseMode,
                  [&options](Mode mode) { options.mode = mode; }));
  flags.Add("max-tiles", "N", "Most tiles in gundam, 4 to 32. Default: the server's.",
            [&options](const std::string& text) {
              int tiles = 0;
              FlagSet one;
              one.AddInteger("max-tiles", "", &tiles, 4, 32);
              std::vector<std::string> words;
              absl::Status status = one.Parse({"--max-tiles=" + text}, &words);
              if (status.ok()) options.max_tiles = tiles;
              return status;
            });
  flags.Add("dtype", "DTYPE", "bf16, fp16 or fp32. Default: bf16; fp32 for .npy.",
            OneOf("bf16, fp16, fp32", ParseDType, [&args](DType dtype) {
              args.options.dtype = dtype;
              args.dtype_given = true;
            }));
  flags.Add("alpha", "POLICY", "Transparency: drop or white. Default: the server's.",
            OneOf(
                "drop, white",
                [](const std::string& text) -> std::optional<Alpha> {
                  if (text == "drop") return Alpha::kDrop;
                  if (text == "white") return Alpha::kWhite;
                  return std::nullopt;
                },
                [&options](Alpha alpha) { options.alpha = alpha; }));
  flags.Add("gray16", "POLICY", "16-bit greyscale: high_byte or saturate. Default: the server's.",
            OneOf(
                "high_byte, saturate",
                [](const std::string& text) -> std::optional<Gray16> {
                  if (text == "high_byte") return Gray16::kHighByte;
                  if (text == "saturate") return Gray16::kSaturate;
                  return std::nullopt;
                },
                [&options](Gray16 gray16) { options.gray16 = gray16; }));
  flags.AddText("out", "FILE",
                "Where the rows go: FILE.npy (one image) or FILE.safetensors (a\n"
                "tensor for each image, by its file's name).",
                &args.out);
  flags.AddText("out-dir", "DIR", "A file for each image, by its name without ending.",
                &args.out_dir);
  flags.Add("format", "FORMAT", "Of --out-dir: safetensors or npy. Default: safetensors.",
            [&args](const std::string& text) {
              if (text != "safetensors" && text != "npy") {
                return absl::InvalidArgumentError("'" + text + "' is not one of: safetensors, npy");
              }
              args.format = text;
              return absl::OkStatus();
            });
  flags.AddInteger("concurrency", "Images in flight when many are given. Default: 8.",
                   &args.concurrency, 1, 1024);
  flags.AddDuration("timeout",
                    "One image: of the whole call. Many: the longest time without\n"
                    "a reply. Default: 1m.",
                    &options.timeout);
  flags.AddDuration("connect-timeout", "For the connection. Default: 5s.", &args.connect_timeout);
  flags.AddText("request-id", "TEXT", "Names the call in the server's logs.", &options.request_id);
  flags.AddText("traceparent", "TEXT", "The trace that the call belongs to (W3C Trace Context).",
                &options.traceparent);
  flags.AddSwitch("json", "A JSON object for each image, one a line.", &args.json);
  flags.AddSwitch("quiet", "Print nothing but errors.", &args.quiet);
  flags.AddSwitch("help", "Print this.", &args.help);
  return flags;
}

// Colours where standard output is a terminal.
std::string Bold(const std::string& text) {
  static const bool terminal = isatty(STDOUT_FILENO) != 0;
  return terminal ? "\x1b[1m" + text + "\x1b[0m" : text;
}

std::string OutputOf(const EncodeArguments& args, const std::string& image) {
  const std::filesystem::path name = std::filesystem::path(image).stem();
  return (std::filesystem::path(args.out_dir) / name).string() + "." + args.format;
}

bool WantsNpy(const EncodeArguments& args) {
  return args.out.ends_with(kNpy) || (!args.out_dir.empty() && args.format == "npy");
}

// What no single flag can say.
absl::Status CheckTogether(EncodeArguments& args) {
  if (args.images.empty()) return absl::InvalidArgumentError("no image was given");
  if (absl::Status status = CheckMetadata(args.options); !status.ok()) return status;
  if (!args.out.empty() && !args.out_dir.empty()) {
    return absl::InvalidArgumentError("--out and --out-dir exclude each other");
  }
  if (!args.out.empty() && !args.out.ends_with(kNpy) && !args.out.ends_with(kSafetensors)) {
    return absl::InvalidArgumentError("--out: '" + args.out +
                                      "' must end with .npy or .safetensors");
  }
  if (args.out.ends_with(kNpy) && args.images.size() > 1) {
    return absl::InvalidArgumentError(
        "--out: an .npy file holds one image; use .safetensors or --out-dir");
  }
  std::set<std::string> names;
  for (const std::string& image : args.images) {
    const bool is_new = names.insert(args.out_dir.empty() ? image : OutputOf(args, image)).second;
    if (is_new || (args.out.empty() && args.out_dir.empty())) continue;
    return absl::InvalidArgumentError("two images would be written under one name: " + image);
  }
  if (WantsNpy(args) && args.options.dtype == DType::kBf16) {
    args.options.dtype = DType::kFp32;
    if (args.dtype_given) {
      std::fputs("deepencoder: .npy has no bf16: asking for fp32 instead\n", stderr);
    }
  }
  if (args.out_dir.empty()) return absl::OkStatus();
  std::error_code error;
  std::filesystem::create_directories(args.out_dir, error);
  if (!error) return absl::OkStatus();
  return absl::InvalidArgumentError("--out-dir: " + args.out_dir + ": " + error.message());
}

std::string Milliseconds(double seconds) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.1f ms", seconds * 1e3);
  return text;
}

std::string ResultText(const std::string& image, const Embeddings& result, Mode mode,
                       const std::string& written) {
  const Geometry& geometry = result.geometry;
  const Timings& times = result.timings;
  std::string tiles = "no tiles";
  if (geometry.tile_side != 0) {
    tiles = absl::StrCat(geometry.tile_columns, " x ", geometry.tile_rows, " tiles of ",
                         geometry.tile_side);
  }
  std::string text = absl::StrCat(
      Bold(image), "  ", std::string(Name(result.dtype)), " [", result.rows, ", ", result.width,
      "]\n  ", std::string(Name(mode)), ", ", geometry.image_width, " x ", geometry.image_height,
      " pixels: ", tiles, ", global view of ", geometry.base_side, "; rows ", geometry.local_rows,
      " + ", geometry.global_rows, " + 1\n  decode ", Milliseconds(times.decode), ", views ",
      Milliseconds(times.views), ", queue ", Milliseconds(times.queue), ", compute ",
      Milliseconds(times.compute), ", assemble ", Milliseconds(times.assemble), ", total ",
      Milliseconds(times.total), "\n");
  if (!written.empty()) absl::StrAppend(&text, "  written to ", written, "\n");
  return text;
}

std::string ResultJson(const std::string& image, const Embeddings& result, Mode mode,
                       const std::string& written) {
  const Geometry& geometry = result.geometry;
  const Timings& times = result.timings;
  std::string json = absl::StrCat(
      "{\"image\":", JsonString(image), ",\"ok\":true,\"mode\":\"", std::string(Name(mode)),
      "\",\"dtype\":\"", std::string(Name(result.dtype)), "\",\"shape\":[", result.rows, ",",
      result.width, "],\"geometry\":{\"image_width\":", geometry.image_width,
      ",\"image_height\":", geometry.image_height, ",\"tile_columns\":", geometry.tile_columns,
      ",\"tile_rows\":", geometry.tile_rows, ",\"base_side\":", geometry.base_side,
      ",\"tile_side\":", geometry.tile_side, ",\"local_rows\":", geometry.local_rows,
      ",\"global_rows\":", geometry.global_rows, "},\"seconds\":{\"decode\":", times.decode);
  absl::StrAppend(&json, ",\"views\":", times.views, ",\"queue\":", times.queue,
                  ",\"compute\":", times.compute, ",\"assemble\":", times.assemble,
                  ",\"total\":", times.total, "}");
  if (!written.empty()) absl::StrAppend(&json, ",\"file\":", JsonString(written));
  return json + "}\n";
}

std::string FailureJson(const std::string& image, const absl::Status& status) {
  return absl::StrCat("{\"image\":", JsonString(image), ",\"ok\":false,\"code\":\"",
                      absl::StatusCodeToString(status.code()),
                      "\",\"message\":", JsonString(std::string(status.message())), "}\n");
}

// Prints, writes and counts what comes back.
class Reporter {
 public:
  explicit Reporter(const EncodeArguments& args)
      : args_(args), progress_(args.images.size(), !args.quiet) {}

  void Report(const std::string& image, absl::StatusOr<Embeddings> result) {
    std::string written;
    if (result.ok()) {
      const absl::Status status = Write(image, *result, &written);
      if (!status.ok()) result = status;
    }
    progress_.Clear();
    if (!result.ok()) {
      ++failed_;
      if (ExitStatusOf(result.status()) == kExitUnreachable) ++unreachable_;
      if (args_.json) std::fputs(FailureJson(image, result.status()).c_str(), stdout);
      PrintError(image + ": " + Describe(result.status()));
    } else if (!args_.quiet) {
      const std::string text = args_.json ? ResultJson(image, *result, args_.options.mode, written)
                                          : ResultText(image, *result, args_.options.mode, written);
      std::fputs(text.c_str(), stdout);
    }
    progress_.Step(result.ok());
    if (result.ok() && args_.out.ends_with(kSafetensors)) kept_.emplace(image, *std::move(result));
  }

  // Writes the one file of --out and returns the exit status.
  int Finish() {
    progress_.Clear();
    if (!kept_.empty()) {
      std::vector<NamedTensor> tensors;
      for (const auto& [image, embeddings] : kept_) tensors.push_back({image, &embeddings});
      const absl::Status status = WriteSafetensors(args_.out, tensors);
      if (!status.ok()) {
        PrintError(Describe(status));
        return kExitFailed;
      }
      if (!args_.quiet && !args_.json)
        std::fputs(("written to " + args_.out + "\n").c_str(), stdout);
    }
    if (failed_ == 0) return kExitOk;
    return unreachable_ == args_.images.size() ? kExitUnreachable : kExitFailed;
  }

 private:
  absl::Status Write(const std::string& image, const Embeddings& embeddings,
                     std::string* written) const {
    if (args_.out.ends_with(kNpy)) {
      *written = args_.out;
      return WriteNpy(args_.out, embeddings);
    }
    if (args_.out_dir.empty()) return absl::OkStatus();
    *written = OutputOf(args_, image);
    if (args_.format == "npy") return WriteNpy(*written, embeddings);
    return WriteSafetensors(*written, {{"embeddings", &embeddings}});
  }

  const EncodeArguments& args_;
  Progress progress_;
  size_t failed_ = 0, unreachable_ = 0;
  std::map<std::string, Embeddings> kept_;  // for --out=FILE.safetensors
};

// Gives images to the stream in their order; a file that cannot be read fails alone.
void EncodeImages(Client& client, const EncodeArguments& args, Reporter& reporter) {
  std::mutex mutex;  // of the reporter, which this thread and the stream's reader use
  std::vector<std::string> sent;
  size_t next = 0;
  const auto source = [&]() -> std::optional<Image> {
    while (next < args.images.size()) {
      const std::string& path = args.images[next++];
      absl::StatusOr<Image> image = ReadImageFile(path);
      const std::lock_guard lock(mutex);
      if (image.ok()) {
        sent.push_back(path);
        return *std::move(image);
      }
      reporter.Report(path, image.status());
    }
    return std::nullopt;
  };
  const auto sink = [&](ManyResult result) {
    const std::lock_guard lock(mutex);
    reporter.Report(sent[result.index], std::move(result.embeddings));
  };
  const absl::Status status = client.EncodeMany(source, args.options, args.concurrency, sink);
  // Images that were never taken, since the stream could not be mended.
  for (; !status.ok() && next < args.images.size(); ++next) {
    reporter.Report(args.images[next], status);
  }
}

}  // namespace

int RunEncode(const std::vector<std::string>& words) {
  EncodeArguments args;
  const FlagSet flags = EncodeFlags(args);
  absl::Status status = flags.Parse(words, &args.images);
  if (status.ok() && args.help) {
    std::fputs((kUsage + flags.Help()).c_str(), stdout);
    return kExitOk;
  }
  if (status.ok()) status = CheckTogether(args);
  if (!status.ok()) {
    PrintError("encode: " + std::string(status.message()));
    return kExitUsage;
  }
  const absl::StatusOr<ClientOptions> options = WithServerFlags(args.server);
  const auto client = options.ok() ? Client::Create(args.server.server, *options)
                                   : absl::StatusOr<std::unique_ptr<Client>>(options.status());
  status = client.ok() ? (*client)->Connect(args.connect_timeout) : client.status();
  if (!status.ok()) {
    PrintError(Describe(status));
    return client.ok() ? kExitUnreachable : kExitUsage;
  }
  Reporter reporter(args);
  if (args.images.size() == 1) {
    absl::StatusOr<Image> image = ReadImageFile(args.images.front());
    reporter.Report(args.images.front(), image.ok()
                                             ? (*client)->Encode(*std::move(image), args.options)
                                             : absl::StatusOr<Embeddings>(image.status()));
  } else {
    EncodeImages(**client, args, reporter);
  }
  return reporter.Finish();
}

}  // namespace deepencoder::client
