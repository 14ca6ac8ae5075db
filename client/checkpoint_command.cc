#include "client/checkpoint_command.h"

#include <charconv>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <iomanip>
#include <map>
#include <memory>
#include <optional>
#include <ostream>
#include <set>
#include <string_view>
#include <system_error>

#include "absl/status/status.h"
#include "encoder/model/checkpoint_layout.h"
#include "encoder/weights/checkpoint.h"
#include "encoder/weights/checkpoint_files.h"
#include "encoder/weights/model_config.h"
#include "encoder/weights/synthetic.h"

namespace deepencoder {
namespace {

namespace fs = std::filesystem;

constexpr int kOk = 0, kFailed = 1, kUsage = 2;
constexpr size_t kMaxListed = 20;  // problems or names that are printed one by one

constexpr std::string_view kHelp = R"(Usage:
  deepencoder checkpoint inspect DIR
      Shows the configuration, the vision encoder's tensors (present, missing, extra, unused), their
      types and the fingerprint. Exit code 1 if the server could not load it.

  deepencoder checkpoint synthesize DIR [--seed N] [--sam-depth N] [--clip-layers N]
      Writes a checkpoint with the real tensors' names and shapes and made-up values, to try and
      test the service without the weights. Its embeddings mean nothing.
        --seed N         of the values; default 0
        --sam-depth N    blocks of SAM; default 12
        --clip-layers N  layers of CLIP; default 24
)";

int Fail(std::ostream& err, const absl::Status& status) {
  err << "deepencoder checkpoint: " << std::string(status.message()) << "\n";
  return kFailed;
}

int UsageError(std::ostream& err, std::string_view message) {
  err << "deepencoder checkpoint: " << message << "\n\n" << kHelp;
  return kUsage;
}

// 802744320 -> "802,744,320"
std::string Grouped(uint64_t number) {
  std::string digits = std::to_string(number);
  for (int at = static_cast<int>(digits.size()) - 3; at > 0; at -= 3) digits.insert(at, ",");
  return digits;
}

// ---------------------------------------------------------------- arguments

struct Arguments {
  std::vector<std::string> folders;            // words that are no options
  std::map<std::string, std::string> options;  // "--seed" -> "7"
};

// Options take a value, as "--seed 7" or "--seed=7". Returns what is wrong, or nothing.
std::optional<std::string> Split(const std::vector<std::string>& words,
                                 const std::set<std::string>& known, Arguments* arguments) {
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (!word.starts_with("-") || word == "-") {
      arguments->folders.push_back(word);
      continue;
    }
    const size_t equals = word.find('=');
    const std::string name = word.substr(0, equals);
    if (!known.contains(name)) return "unknown option " + name;
    if (equals != std::string::npos) {
      arguments->options[name] = word.substr(equals + 1);
    } else if (i + 1 < words.size()) {
      arguments->options[name] = words[++i];
    } else {
      return name + " needs a value";
    }
  }
  if (arguments->folders.size() != 1) {
    return "expected one folder, found " + std::to_string(arguments->folders.size());
  }
  return std::nullopt;
}

template <typename Integer>
std::optional<std::string> ReadOption(const Arguments& arguments, const std::string& name,
                                      Integer min, Integer max, Integer* value) {
  const auto found = arguments.options.find(name);
  if (found == arguments.options.end()) return std::nullopt;
  const std::string& text = found->second;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, *value);
  if (error == std::errc() && stop == end && *value >= min && *value <= max) return std::nullopt;
  return name + ": expected a whole number from " + std::to_string(min) + " to " +
         std::to_string(max) + ", found \"" + text + "\"";
}

// ---------------------------------------------------------------- synthesize

int Synthesize(const std::vector<std::string>& words, std::ostream& out, std::ostream& err) {
  Arguments arguments;
  auto wrong = Split(words, {"--seed", "--sam-depth", "--clip-layers"}, &arguments);
  SyntheticOptions options;
  if (!wrong) wrong = ReadOption(arguments, "--seed", INT64_MIN, INT64_MAX, &options.seed);
  if (!wrong) wrong = ReadOption(arguments, "--sam-depth", 1, kMaxDepth, &options.sam_depth);
  if (!wrong) wrong = ReadOption(arguments, "--clip-layers", 1, kMaxDepth, &options.clip_layers);
  if (wrong) return UsageError(err, *wrong);

  const std::string& folder = arguments.folders.front();
  const auto start = std::chrono::steady_clock::now();
  if (absl::Status status = WriteSyntheticCheckpoint(folder, options); !status.ok()) {
    return Fail(err, status);
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  out << folder << ": synthetic checkpoint, seed " << options.seed << ", " << options.sam_depth
      << " SAM blocks, " << options.clip_layers << " CLIP layers, in " << std::fixed
      << std::setprecision(1) << took.count() << " s\n"
      << "Its values are made up: the embeddings mean nothing.\n";
  return kOk;
}

// ---------------------------------------------------------------- inspect

// What a folder holds of the vision encoder's tensors.
struct Survey {
  size_t present = 0;
  uint64_t bytes = 0;
  size_t other = 0;                      // language tensors
  std::map<std::string, size_t> dtypes;  // of the layout's tensors, by the file's names
  std::vector<std::string> extra;        // named like vision tensors, but not in the layout
  std::vector<std::string> unused;       // in the layout and never read
  std::vector<std::string> problems;
};

bool IsVisionName(std::string_view name) {
  for (const std::string_view prefix :
       {"model.sam_model.", "model.vision_model.", "model.projector."}) {
    if (name.starts_with(prefix)) return true;
  }
  return false;
}

Survey SurveyOf(const ModelConfig& config, const std::vector<TensorSpec>& layout,
                const CheckpointFiles& files) {
  Survey survey;
  std::set<std::string_view> known;
  for (const TensorSpec& spec : layout) {
    known.insert(spec.name);
    if (absl::Status status = files.Check(spec); !status.ok()) {
      survey.problems.emplace_back(status.message());
    }
    const auto found = files.tensors().find(spec.name);
    if (found == files.tensors().end() || found->second.tensor == nullptr) continue;
    ++survey.present;
    survey.bytes += found->second.tensor->bytes;
    ++survey.dtypes[found->second.tensor->dtype];
    if (!spec.used) survey.unused.push_back(spec.name);
  }
  if (absl::Status status = files.CheckDepth(config); !status.ok()) {
    survey.problems.emplace_back(status.message());
  }
  for (const auto& [name, location] : files.tensors()) {
    if (known.contains(name)) continue;
    if (IsVisionName(name)) {
      survey.extra.push_back(name);
    } else {
      ++survey.other;
    }
  }
  return survey;
}

void PrintList(std::ostream& out, std::string_view label, const std::vector<std::string>& lines) {
  for (size_t i = 0; i < lines.size() && i < kMaxListed; ++i) out << label << lines[i] << "\n";
  if (lines.size() > kMaxListed) {
    out << label << "and " << lines.size() - kMaxListed << " more\n";
  }
}

void PrintSurvey(std::ostream& out, const ModelConfig& config, const CheckpointFiles& files,
                 size_t expected, const Survey& survey) {
  out << "config       SAM " << config.sam_depth << " blocks, global attention in";
  for (const int block : config.global_blocks) out << " " << block;
  out << (config.global_blocks.empty() ? " none" : "") << "; CLIP " << config.clip_layers
      << " layers\n";
  for (const auto& file : files.files()) out << "file         " << file->path() << "\n";
  out << "tensors      " << files.tensors().size() << ": " << survey.present << " of the "
      << expected << " of the vision encoder, " << survey.other << " others, not read\n"
      << "bytes        " << Grouped(survey.bytes) << "\n"
      << "types        ";
  std::string_view separator;
  for (const auto& [dtype, count] : survey.dtypes) {
    out << separator << dtype << " x " << count;
    separator = ", ";
  }
  out << (survey.dtypes.empty() ? "none\n" : "\n");
  PrintList(out, "unused       ", survey.unused);
  PrintList(out, "extra        ", survey.extra);
}

int Inspect(const std::vector<std::string>& words, std::ostream& out, std::ostream& err) {
  Arguments arguments;
  if (const auto wrong = Split(words, {}, &arguments)) return UsageError(err, *wrong);
  const std::string& folder = arguments.folders.front();
  const absl::StatusOr<ModelConfig> config =
      ReadModelConfig((fs::path(folder) / kConfigFile).string());
  if (!config.ok()) return Fail(err, config.status());
  const std::vector<TensorSpec> layout = CheckpointLayout(*config);
  const absl::StatusOr<std::unique_ptr<CheckpointFiles>> files =
      CheckpointFiles::Open(folder, layout);
  if (!files.ok()) return Fail(err, files.status());

  const Survey survey = SurveyOf(*config, layout, **files);
  PrintSurvey(out, *config, **files, layout.size(), survey);
  if (!survey.problems.empty()) {
    PrintList(err, "deepencoder checkpoint: ", survey.problems);
    return kFailed;
  }
  // The server's own way in, which also gives what depends on the values.
  const absl::StatusOr<std::unique_ptr<Checkpoint>> checkpoint = Checkpoint::Open(folder);
  if (!checkpoint.ok()) return Fail(err, checkpoint.status());
  out << "fingerprint  " << (*checkpoint)->fingerprint() << "\n"
      << "values       "
      << ((*checkpoint)->synthetic() ? "synthetic: the embeddings mean nothing" : "not synthetic")
      << "\n";
  return kOk;
}

}  // namespace

int RunCheckpointCommand(const std::vector<std::string>& args, std::ostream& out,
                         std::ostream& err) {
  if (args.empty()) return UsageError(err, "expected inspect or synthesize");
  for (const std::string& word : args) {
    if (word == "--help" || word == "-h") {
      out << kHelp;
      return kOk;
    }
  }
  const std::vector<std::string> rest(args.begin() + 1, args.end());
  if (args.front() == "inspect") return Inspect(rest, out, err);
  if (args.front() == "synthesize") return Synthesize(rest, out, err);
  return UsageError(err, "unknown command \"" + args.front() + "\"");
}

}  // namespace deepencoder
