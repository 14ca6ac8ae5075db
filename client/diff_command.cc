#include "client/diff_command.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/client.h"
#include "client/commands.h"
#include "client/diff_heat.h"
#include "client/diff_rows.h"
#include "client/flags.h"
#include "client/tensor_file.h"
#include "encoder/image/decode.h"
#include "encoder/image/view_plan.h"
#include "encoder/image/views.h"

namespace deepencoder::client {
namespace {

struct DiffArguments {
  std::vector<std::string> words;
  std::string tensor, heat, image;
  std::optional<double> tolerance;
  int max_tiles = kDefaultMaxTiles, worst = 5, height = 800;
  bool json = false, help = false;
};

const char kUsage[] =
    "deepencoder diff A B [flags]: how far two embeddings of an image are apart.\n"
    "\n"
    "  deepencoder diff reference.safetensors ours.npy\n"
    "  deepencoder diff before.npy after.npy --tolerance=1e-2 --json\n"
    "  deepencoder diff a.safetensors b.safetensors --heat=heat.png --image=page.png\n"
    "\n"
    "A and B are files as 'deepencoder encode --out' writes them: .npy or .safetensors. A is the\n"
    "reference: relative error is the L2 norm of B - A over that of A. Files with several tensors\n"
    "are compared name by name. Where rows lie is known from their number; the heat map shows one\n"
    "minus the cosine of each row of A with that of B, over the page if --image gives it.\n"
    "Exit status: 0 done, 1 the error is above --tolerance, a value is not finite, the shapes or\n"
    "names differ or a file cannot be read, 2 wrong usage.\n"
    "\n";

FlagSet DiffFlags(DiffArguments& args) {
  FlagSet flags;
  flags.Add("tolerance", "ERROR",
            "Largest relative error that is fine, such as 1.25e-2.\nDefault: any is.",
            [&args](const std::string& text) {
              double value = 0;
              const auto [stop, error] =
                  std::from_chars(text.data(), text.data() + text.size(), value);
              if (error != std::errc() || stop != text.data() + text.size() || !(value >= 0)) {
                return absl::InvalidArgumentError("'" + text + "' is not a number of at least 0");
              }
              args.tolerance = value;
              return absl::OkStatus();
            });
  flags.AddInteger("worst", "Rows to name, those of least cosine. Default: 5.", &args.worst, 0,
                   100'000);
  flags.AddText("tensor", "NAME", "Compare only this one of the files' tensors.", &args.tensor);
  flags.AddText("heat", "FILE.png", "Where the heat map goes. Default: none is drawn.", &args.heat);
  flags.AddText("image", "FILE", "The image that was encoded, to draw the heat map on.",
                &args.image);
  flags.AddInteger("max-tiles", "That the image was encoded with. Default: 6.", &args.max_tiles,
                   kMinMaxTiles, kMaxMaxTiles);
  flags.AddInteger("height", "Of a panel of the heat map, about, in pixels. Default: 800.",
                   &args.height, 200, 8000);
  flags.AddSwitch("json", "A JSON object for each pair of tensors, one a line.", &args.json);
  flags.AddSwitch("help", "Print this.", &args.help);
  return flags;
}

struct Pair {
  const RowsTensor *a, *b;
};

// Tensors of one name, or the only two there are. Errors: NOT_FOUND (a name that one file lacks),
// INVALID_ARGUMENT (shapes differ).
absl::StatusOr<std::vector<Pair>> MakePairs(const std::vector<RowsTensor>& a,
                                            const std::vector<RowsTensor>& b,
                                            const std::string& only) {
  const auto find = [](const std::vector<RowsTensor>& tensors, const std::string& name) {
    const auto at = std::find_if(tensors.begin(), tensors.end(),
                                 [&name](const RowsTensor& tensor) { return tensor.name == name; });
    return at == tensors.end() ? nullptr : &*at;
  };
  std::vector<Pair> pairs;
  if (a.size() == 1 && b.size() == 1 && only.empty()) {
    pairs.push_back({a.data(), b.data()});
  } else {
    std::vector<std::string> names;
    for (const auto* tensors : {&a, &b}) {
      for (const RowsTensor& tensor : *tensors) names.push_back(tensor.name);
    }
    if (!only.empty()) names = {only};
    std::sort(names.begin(), names.end());
    names.erase(std::unique(names.begin(), names.end()), names.end());
    for (const std::string& name : names) {
      pairs.push_back({find(a, name), find(b, name)});
      if (pairs.back().a != nullptr && pairs.back().b != nullptr) continue;
      return absl::NotFoundError(
          absl::StrCat("tensor '", name, "' is not in ", pairs.back().a == nullptr ? "A" : "B"));
    }
  }
  for (const Pair& pair : pairs) {
    if (pair.a->rows == pair.b->rows && pair.a->width == pair.b->width) continue;
    return absl::InvalidArgumentError(absl::StrCat("the shapes differ: A has ", pair.a->rows, " x ",
                                                   pair.a->width, ", B ", pair.b->rows, " x ",
                                                   pair.b->width));
  }
  return pairs;
}

std::string Number(const char* format, double value) {
  char text[64];
  std::snprintf(text, sizeof(text), format, value);
  return text;
}

// JSON has no NaN.
std::string JsonNumber(double value) {
  return std::isfinite(value) ? Number("%.9g", value) : "null";
}

// Blocks of the rows, without pictures; none if their number belongs to no mode, or to several
// arrangements.
std::vector<Block> BlocksOfRows(int64_t rows) {
  const std::vector<Arrangement> found = ArrangementsOf(rows);
  if (found.size() != 1) return {};
  return BlocksOf(found.front().mode, found.front().tiles, {});
}

std::string NameOf(const Pair& pair) { return pair.a->name.empty() ? pair.b->name : pair.a->name; }

std::string PairText(const DiffArguments& args, const Pair& pair, const Difference& difference,
                     bool fine) {
  const bool terminal = isatty(STDOUT_FILENO) != 0;
  const auto paint = [terminal](const char* code, const std::string& text) {
    return terminal ? absl::StrCat("\x1b[", code, "m", text, "\x1b[0m") : text;
  };
  const std::string name = NameOf(pair);
  std::string text =
      absl::StrCat(name.empty() ? "" : paint("1", name) + "  ", "[", pair.a->rows, ", ",
                   pair.a->width, "], A ", pair.a->type, ", B ", pair.b->type, "\n");
  absl::StrAppend(&text, "  relative error  ",
                  paint(fine ? "32" : "31", Number("%.4g", difference.relative_error)));
  if (args.tolerance) {
    absl::StrAppend(&text, fine ? "  within " : "  NOT within ", Number("%g", *args.tolerance));
  }
  absl::StrAppend(&text, "\n  cosine          mean ", Number("%.8f", difference.cosine_mean),
                  ", least ", Number("%.8f", difference.cosine_min), "\n  largest         ",
                  Number("%.4g", difference.largest), " at row ", difference.largest_row,
                  ", column ", difference.largest_column, "\n");
  if (difference.not_finite > 0) {
    absl::StrAppend(&text, "  ", paint("31", "NaN or infinity"), " in ", difference.not_finite,
                    " rows\n");
  }
  const std::vector<Block> blocks = BlocksOfRows(pair.a->rows);
  const std::vector<int64_t> worst = WorstRows(difference, static_cast<size_t>(args.worst));
  if (!worst.empty()) absl::StrAppend(&text, "  worst rows      row      cosine   rel. error\n");
  for (const int64_t row : worst) {
    const auto at = static_cast<size_t>(row);
    char line[96];
    std::snprintf(line, sizeof(line), "%21lld  %.8f  %11.4g", static_cast<long long>(row),
                  difference.row_cosine[at], difference.row_error[at]);
    absl::StrAppend(&text, line,
                    blocks.empty() ? "" : "  " + PlaceOf(blocks, static_cast<int>(row)), "\n");
  }
  return text;
}

std::string PairJson(const DiffArguments& args, const Pair& pair, const Difference& difference,
                     bool fine) {
  std::string json =
      absl::StrCat("{\"tensor\":", JsonString(NameOf(pair)), ",\"ok\":", fine ? "true" : "false",
                   ",\"shape\":[", pair.a->rows, ",", pair.a->width,
                   "],\"relative_error\":", JsonNumber(difference.relative_error),
                   ",\"cosine_mean\":", JsonNumber(difference.cosine_mean),
                   ",\"cosine_min\":", JsonNumber(difference.cosine_min));
  absl::StrAppend(&json, ",\"largest\":", JsonNumber(difference.largest),
                  ",\"largest_row\":", difference.largest_row,
                  ",\"largest_column\":", difference.largest_column,
                  ",\"not_finite_rows\":", difference.not_finite, ",\"worst_rows\":[");
  const char* comma = "";
  for (const int64_t row : WorstRows(difference, static_cast<size_t>(args.worst))) {
    const auto at = static_cast<size_t>(row);
    absl::StrAppend(&json, comma, "{\"row\":", row,
                    ",\"cosine\":", JsonNumber(difference.row_cosine[at]),
                    ",\"relative_error\":", JsonNumber(difference.row_error[at]), "}");
    comma = ",";
  }
  return json + "]}\n";
}

// Blocks with the image's views as their pictures: in the mode that gives as many rows.
absl::StatusOr<std::vector<Block>> BlocksOfImage(const DiffArguments& args, int64_t rows) {
  const absl::StatusOr<Image> file = ReadImageFile(args.image);
  if (!file.ok()) return file.status();
  const auto image = DecodeImage(std::as_bytes(std::span(file->encoded)), {});
  if (!image.ok()) return image.status();
  for (const ModeSpec& spec : Modes()) {
    const auto plan = PlanViews(image->width(), image->height(), spec.mode, args.max_tiles);
    if (!plan.ok() || LayoutOf(spec.mode, plan->tiles).rows != rows) continue;
    return BlocksOf(spec.mode, plan->tiles, RenderViews(*image, *plan));
  }
  return absl::InvalidArgumentError(absl::StrCat(args.image, ": no mode makes ", rows,
                                                 " rows of it with --max-tiles=", args.max_tiles));
}

absl::Status WriteHeat(const DiffArguments& args, const Pair& pair, const Difference& difference) {
  std::vector<Block> blocks = BlocksOfRows(pair.a->rows);
  if (!args.image.empty()) {
    absl::StatusOr<std::vector<Block>> of_image = BlocksOfImage(args, pair.a->rows);
    if (!of_image.ok()) return of_image.status();
    blocks = *std::move(of_image);
  }
  if (blocks.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--heat: ", pair.a->rows, " rows are not those of one mode; --image may tell which"));
  }
  const auto name = [](const std::string& path) {
    return std::filesystem::path(path).filename().string();
  };
  const std::string note = absl::StrCat(
      "relative error ", Number("%.3g", difference.relative_error), ", cosine: mean ",
      Number("%.7f", difference.cosine_mean), ", least ", Number("%.7f", difference.cosine_min));
  const Canvas canvas =
      DrawHeat(absl::StrCat(name(args.words[1]), " against ", name(args.words[0])), note, blocks,
               difference.row_cosine, args.height);
  return WritePng(args.heat, canvas.pixels());
}

absl::Status CheckUsage(const DiffArguments& args) {
  if (args.words.size() != 2) {
    return absl::InvalidArgumentError(
        absl::StrCat("two files are needed, ", args.words.size(), " were given"));
  }
  if (!args.image.empty() && args.heat.empty()) {
    return absl::InvalidArgumentError("--image is for --heat");
  }
  return absl::OkStatus();
}

// Prints the comparison; whether all is fine.
absl::StatusOr<bool> Diff(const DiffArguments& args) {
  const auto a = ReadEmbeddings(args.words[0]), b = ReadEmbeddings(args.words[1]);
  if (!a.ok()) return a.status();
  if (!b.ok()) return b.status();
  const absl::StatusOr<std::vector<Pair>> pairs = MakePairs(*a, *b, args.tensor);
  if (!pairs.ok()) return pairs.status();
  if (!args.heat.empty() && pairs->size() != 1) {
    return absl::InvalidArgumentError("--heat: the files hold several tensors; --tensor names one");
  }
  bool all_fine = true;
  for (const Pair& pair : *pairs) {
    const Difference difference = CompareRows(*pair.a, *pair.b);
    const bool fine = difference.not_finite == 0 &&
                      (!args.tolerance || difference.relative_error <= *args.tolerance);
    all_fine &= fine;
    std::fputs((args.json ? PairJson : PairText)(args, pair, difference, fine).c_str(), stdout);
    if (args.heat.empty()) continue;
    const absl::Status status = WriteHeat(args, pair, difference);
    if (!status.ok()) return status;
  }
  return all_fine;
}

}  // namespace

int RunDiff(const std::vector<std::string>& words) {
  DiffArguments args;
  const FlagSet flags = DiffFlags(args);
  absl::Status status = flags.Parse(words, &args.words);
  if (status.ok() && args.help) {
    std::fputs((kUsage + flags.Help()).c_str(), stdout);
    return kExitOk;
  }
  if (status.ok()) status = CheckUsage(args);
  if (!status.ok()) {
    PrintError("diff: " + std::string(status.message()));
    return kExitUsage;
  }
  const absl::StatusOr<bool> fine = Diff(args);
  if (!fine.ok()) {
    PrintError("diff: " + Describe(fine.status()));
    return kExitFailed;
  }
  return *fine ? kExitOk : kExitFailed;
}

}  // namespace deepencoder::client
