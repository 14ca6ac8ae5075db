#include "encoder/weights/checkpoint_files.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <set>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "encoder/weights/json.h"

namespace deepencoder {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxIndexBytes = size_t{16} << 20;

std::string Join(const std::string& folder, std::string_view name) {
  return (fs::path(folder) / name).string();
}

// A shard must be a file of the folder itself: an index must not reach out of it.
bool IsPlainFileName(std::string_view name) {
  return !name.empty() && name != "." && name != ".." &&
         name.find_first_of(std::string_view("/\\\0", 3)) == std::string_view::npos;
}

// The one weights file of a folder without an index.
absl::StatusOr<std::string> FindSingleFile(const std::string& folder) {
  std::error_code error;
  const std::string usual = Join(folder, kSingleFile);
  if (fs::exists(usual, error)) return usual;
  std::vector<std::string> found;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    if (it->path().extension() == ".safetensors") found.push_back(it->path().string());
  }
  if (error) return absl::InvalidArgumentError(absl::StrCat(folder, ": ", error.message()));
  if (found.empty()) {
    return absl::NotFoundError(absl::StrCat(folder, ": no *.safetensors file in this folder"));
  }
  if (found.size() > 1) {
    return absl::InvalidArgumentError(
        absl::StrCat(folder, ": ", found.size(), " *.safetensors files, but no ",
                     std::string(kIndexFile), " that says which tensor is where"));
  }
  return found.front();
}

}  // namespace

std::optional<DType> DTypeOfFile(std::string_view name) {
  if (name == "BF16") return DType::kBf16;
  if (name == "F16") return DType::kFp16;
  if (name == "F32") return DType::kFp32;
  return std::nullopt;
}

absl::StatusOr<std::unique_ptr<CheckpointFiles>> CheckpointFiles::Open(
    const std::string& folder, const std::vector<TensorSpec>& wanted) {
  auto files = std::make_unique<CheckpointFiles>();
  std::error_code error;
  const bool sharded = fs::exists(Join(folder, kIndexFile), error);
  absl::Status status = sharded ? files->OpenShards(folder, wanted) : files->OpenSingle(folder);
  if (!status.ok()) return status;
  return files;
}

absl::Status CheckpointFiles::OpenSingle(const std::string& folder) {
  absl::StatusOr<std::string> path = FindSingleFile(folder);
  if (!path.ok()) return path.status();
  source_ = *path;
  absl::StatusOr<std::unique_ptr<SafetensorsFile>> file = SafetensorsFile::Open(source_);
  if (!file.ok()) return file.status();
  for (const auto& [name, tensor] : (*file)->tensors()) {
    tensors_.emplace(name, TensorLocation{file->get(), &tensor});
  }
  files_.push_back(*std::move(file));
  return absl::OkStatus();
}

absl::Status CheckpointFiles::OpenShards(const std::string& folder,
                                         const std::vector<TensorSpec>& wanted) {
  source_ = Join(folder, kIndexFile);
  const absl::StatusOr<JsonObject> index = ReadJsonFile(source_, kMaxIndexBytes);
  if (!index.ok()) return index.status();
  const JsonValue* weight_map = FindJson(*index, "weight_map");
  if (weight_map == nullptr || !weight_map->has_struct_value()) {
    return absl::InvalidArgumentError(absl::StrCat(source_, ": no object weight_map"));
  }

  std::map<std::string, std::string, std::less<>> shard_of;  // by tensor, sorted
  for (const auto& [name, value] : weight_map->struct_value().fields()) {
    const absl::StatusOr<std::string_view> shard = JsonString(value);
    if (!shard.ok() || !IsPlainFileName(*shard)) {
      return absl::InvalidArgumentError(absl::StrCat(
          source_, ": tensor ", name, ": expected the name of a file in the same folder, found ",
          shard.ok() ? absl::StrCat("\"", std::string(*shard), "\"")
                     : std::string(JsonKind(value))));
    }
    shard_of.emplace(name, *shard);
  }

  std::map<std::string, const SafetensorsFile*, std::less<>> opened;
  for (const TensorSpec& spec : wanted) {
    const auto listed = shard_of.find(spec.name);
    if (listed == shard_of.end() || opened.contains(listed->second)) continue;
    absl::StatusOr<std::unique_ptr<SafetensorsFile>> file =
        SafetensorsFile::Open(Join(folder, listed->second));
    if (!file.ok()) return file.status();
    opened.emplace(listed->second, file->get());
    files_.push_back(*std::move(file));
  }

  for (const auto& [name, shard] : shard_of) {
    TensorLocation location{nullptr, nullptr};
    if (const auto file = opened.find(shard); file != opened.end()) {
      location.file = file->second;
      const auto tensor = location.file->tensors().find(name);
      if (tensor != location.file->tensors().end()) location.tensor = &tensor->second;
    }
    tensors_.emplace(name, location);
  }
  return absl::OkStatus();
}

absl::Status CheckpointFiles::Check(const TensorSpec& spec) const {
  const auto found = tensors_.find(spec.name);
  const std::string expected = absl::StrCat("expected BF16, F16 or F32 ", ShapeText(spec.shape));
  if (found == tensors_.end() || found->second.tensor == nullptr) {
    const bool listed = found != tensors_.end() && found->second.file != nullptr;
    return absl::InvalidArgumentError(absl::StrCat(
        listed ? found->second.file->path() : source_, ": tensor ", spec.name, " is missing: ",
        expected, listed ? absl::StrCat(", and ", source_, " says it is in this file") : ""));
  }
  const SafetensorsTensor& tensor = *found->second.tensor;
  if (!DTypeOfFile(tensor.dtype) || tensor.shape != spec.shape) {
    return absl::InvalidArgumentError(absl::StrCat(found->second.file->path(), ": tensor ",
                                                   spec.name, ": ", expected, ", found ",
                                                   tensor.dtype, " ", ShapeText(tensor.shape)));
  }
  return absl::OkStatus();
}

absl::Status CheckpointFiles::CheckDepth(const ModelConfig& config) const {
  const std::string next[] = {
      absl::StrCat("model.sam_model.blocks.", config.sam_depth, "."),
      absl::StrCat("model.vision_model.transformer.layers.", config.clip_layers, "."),
  };
  for (const std::string& prefix : next) {
    const auto found = tensors_.lower_bound(prefix);
    if (found != tensors_.end() && found->first.starts_with(prefix)) {
      return absl::InvalidArgumentError(
          absl::StrCat(source_, ": tensor ", found->first, " is of a layer that ",
                       std::string(kConfigFile), " does not have: it says ", config.sam_depth,
                       " SAM blocks and ", config.clip_layers, " CLIP layers, counted from 0"));
    }
  }
  return absl::OkStatus();
}

}  // namespace deepencoder
