#include "client/view_command.h"

#include <cstdio>
#include <filesystem>
#include <optional>
#include <span>

#include "absl/strings/str_cat.h"
#include "client/client.h"
#include "client/commands.h"
#include "client/flags.h"
#include "client/tensor_file.h"
#include "client/view_blocks.h"
#include "client/view_picture.h"
#include "encoder/image/decode.h"
#include "encoder/image/view_plan.h"
#include "encoder/image/views.h"
#include "encoder/model/config.h"

namespace deepencoder::client {
namespace {

struct ViewArguments {
  std::vector<std::string> words;
  deepencoder::Mode mode = deepencoder::Mode::kGundam;
  int max_tiles = kDefaultMaxTiles;
  DecodeOptions decode;
  std::string out, views_dir;
  int height = 960;
  bool json = false, help = false;
};

const char kUsage[] =
    "deepencoder view IMAGE [flags]: shows what the language model gets of an image.\n"
    "\n"
    "  deepencoder view page.png                              the layout of the rows, in words\n"
    "  deepencoder view page.png --mode=gundam --out=views.png    the same as a picture\n"
    "  deepencoder view page.png --mode=base --views-dir=views    the views themselves\n"
    "\n"
    "The picture shows the page with its tiles, each view with its token grid (a token stands for\n"
    "64 x 64 pixels of a view), the newline row at each line's end, and the rows' order. Small "
    "print\n"
    "that cannot be read in the views cannot be read by the model either. No server is needed: "
    "the\n"
    "views are those the server makes, to the bit.\n"
    "Exit status: 0 done, 1 the image or the output failed, 2 wrong usage.\n"
    "\n";

FlagSet ViewFlags(ViewArguments& args) {
  FlagSet flags;
  flags.Add("mode", "MODE", "tiny, small, base, large or gundam. Default: gundam.",
            OneOf(
                "tiny, small, base, large, gundam",
                [](const std::string& text) { return deepencoder::ParseMode(text); },
                [&args](deepencoder::Mode mode) { args.mode = mode; }));
  flags.AddInteger("max-tiles", "Most tiles in gundam, 4 to 32. Default: 6.", &args.max_tiles,
                   kMinMaxTiles, kMaxMaxTiles);
  flags.Add("alpha", "POLICY", "Transparency: drop or white. Default: drop.",
            OneOf(
                "drop, white",
                [](const std::string& text) -> std::optional<AlphaPolicy> {
                  if (text == "drop") return AlphaPolicy::kDrop;
                  if (text == "white") return AlphaPolicy::kWhite;
                  return std::nullopt;
                },
                [&args](AlphaPolicy policy) { args.decode.alpha = policy; }));
  flags.Add("gray16", "POLICY", "16-bit greyscale: high_byte or saturate. Default: high_byte.",
            OneOf(
                "high_byte, saturate",
                [](const std::string& text) -> std::optional<Gray16Policy> {
                  if (text == "high_byte") return Gray16Policy::kHighByte;
                  if (text == "saturate") return Gray16Policy::kSaturate;
                  return std::nullopt;
                },
                [&args](Gray16Policy policy) { args.decode.gray16 = policy; }));
  flags.AddText("out", "FILE.png", "Where the picture goes. Default: none is drawn.", &args.out);
  flags.AddInteger("height", "Of a panel of the picture, about, in pixels. Default: 960.",
                   &args.height, 200, 8000);
  flags.AddText("views-dir", "DIR",
                "Writes each view as a PNG file, pixel by pixel as it is\nencoded.",
                &args.views_dir);
  flags.AddSwitch("json", "The layout as a JSON object.", &args.json);
  flags.AddSwitch("help", "Print this.", &args.help);
  return flags;
}

// An image and all that is made of it.
struct Looked {
  RgbImage image;
  ViewPlan plan;
  SequenceLayout layout;
  std::vector<View> views;
  std::vector<Block> blocks;
};

absl::StatusOr<Looked> Look(const ViewArguments& args) {
  const absl::StatusOr<Image> file = ReadImageFile(args.words.front());
  if (!file.ok()) return file.status();
  absl::StatusOr<RgbImage> image =
      DecodeImage(std::as_bytes(std::span(file->encoded)), args.decode);
  if (!image.ok()) return image.status();
  absl::StatusOr<ViewPlan> plan =
      PlanViews(image->width(), image->height(), args.mode, args.max_tiles);
  if (!plan.ok()) return plan.status();
  std::vector<View> views = RenderViews(*image, *plan);
  std::vector<Block> blocks = BlocksOf(args.mode, plan->tiles, views);
  SequenceLayout layout = LayoutOf(args.mode, plan->tiles);
  return Looked{*std::move(image), *std::move(plan), std::move(layout), std::move(views),
                std::move(blocks)};
}

// "tile 1", ..., "global": in the order of the views.
std::string ViewName(const Looked& looked, size_t view) {
  return view + 1 == looked.views.size() ? "global" : absl::StrCat("tile ", view + 1);
}

std::string LayoutText(const std::string& path, const Looked& looked) {
  const ViewPlan& plan = looked.plan;
  const ModeSpec& spec = SpecOf(plan.mode);
  std::string text = absl::StrCat(path, "  ", plan.image_width, " x ", plan.image_height,
                                  " pixels, mode ", std::string(spec.name), ": ");
  if (plan.tiles.count() > 0) {
    absl::StrAppend(&text, plan.tiles.columns, " x ", plan.tiles.rows, " tiles of ", spec.tile_side,
                    ", ");
  }
  absl::StrAppend(&text, "global view of ", spec.base_side, "\n");
  char line[160];
  for (const Block& block : looked.blocks) {
    const std::string rows =
        absl::StrCat("rows ", block.first_row, " to ", block.first_row + block.rows() - 1);
    std::snprintf(line, sizeof(line), "  %-18s %-7s %d lines of %d tokens and a newline row\n",
                  rows.c_str(), block.name.c_str(), block.lines, block.columns);
    text += line;
  }
  const std::string separator = absl::StrCat("row ", looked.layout.separator_row);
  std::snprintf(line, sizeof(line), "  %-18s view separator\n", separator.c_str());
  return absl::StrCat(text, line, "  ", looked.layout.rows, " rows of ", kEmbeddingWidth,
                      ": the prompt needs as many placeholder tokens\n");
}

std::string LayoutJson(const std::string& path, const Looked& looked) {
  const ViewPlan& plan = looked.plan;
  std::string json = absl::StrCat(
      "{\"image\":", JsonString(path), ",\"mode\":\"", std::string(SpecOf(plan.mode).name),
      "\",\"image_width\":", plan.image_width, ",\"image_height\":", plan.image_height,
      ",\"tile_columns\":", plan.tiles.columns, ",\"tile_rows\":", plan.tiles.rows,
      ",\"rows\":", looked.layout.rows, ",\"blocks\":[");
  for (const Block& block : looked.blocks) {
    absl::StrAppend(&json, &block == looked.blocks.data() ? "" : ",", "{\"name\":\"", block.name,
                    "\",\"first_row\":", block.first_row, ",\"rows\":", block.rows(),
                    ",\"lines\":", block.lines, ",\"columns\":", block.columns, "}");
  }
  absl::StrAppend(&json, "],\"views\":[");
  for (size_t i = 0; i < looked.layout.views.size(); ++i) {
    const ViewRows& view = looked.layout.views[i];
    absl::StrAppend(&json, i == 0 ? "" : ",", "{\"name\":\"", ViewName(looked, i),
                    "\",\"side\":", view.side, ",\"first_row\":", view.first_row,
                    ",\"lines\":", view.lines, ",\"line_stride\":", view.line_stride, "}");
  }
  return absl::StrCat(json, "],\"separator_row\":", looked.layout.separator_row, "}\n");
}

absl::Status WriteViews(const std::string& folder, const Looked& looked) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) return absl::InvalidArgumentError(folder + ": " + error.message());
  for (size_t i = 0; i < looked.views.size(); ++i) {
    std::string name = ViewName(looked, i) + ".png";
    if (const size_t blank = name.find(' '); blank != std::string::npos) name[blank] = '_';
    const View& view = looked.views[i];
    cv::Mat pixels(view.side, view.side, CV_8UC3);
    std::copy(view.rgb.begin(), view.rgb.end(), pixels.ptr());
    const absl::Status status = WritePng((std::filesystem::path(folder) / name).string(), pixels);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status WriteOutputs(const ViewArguments& args, const Looked& looked) {
  if (!args.views_dir.empty()) {
    const absl::Status status = WriteViews(args.views_dir, looked);
    if (!status.ok()) return status;
  }
  if (args.out.empty()) return absl::OkStatus();
  const std::string name = std::filesystem::path(args.words.front()).filename().string();
  const Canvas picture = DrawViews(name, looked.image, looked.plan, looked.blocks, args.height);
  return WritePng(args.out, picture.pixels());
}

}  // namespace

int RunView(const std::vector<std::string>& words) {
  ViewArguments args;
  const FlagSet flags = ViewFlags(args);
  absl::Status status = flags.Parse(words, &args.words);
  if (status.ok() && args.help) {
    std::fputs((kUsage + flags.Help()).c_str(), stdout);
    return kExitOk;
  }
  if (status.ok() && args.words.size() != 1) {
    status = absl::InvalidArgumentError(
        absl::StrCat("one image is needed, ", args.words.size(), " were given"));
  }
  if (!status.ok()) {
    PrintError("view: " + std::string(status.message()));
    return kExitUsage;
  }
  const absl::StatusOr<Looked> looked = Look(args);
  status = looked.ok() ? WriteOutputs(args, *looked) : looked.status();
  if (!status.ok()) {
    PrintError("view: " + args.words.front() + ": " + Describe(status));
    return kExitFailed;
  }
  std::fputs((args.json ? LayoutJson : LayoutText)(args.words.front(), *looked).c_str(), stdout);
  return kExitOk;
}

}  // namespace deepencoder::client
