#include "encoder/weights/checkpoint.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "encoder/model/checkpoint_layout.h"
#include "encoder/weights/checkpoint_files.h"
#include "encoder/weights/fnv1a.h"
#include "encoder/weights/model_config.h"
#include "encoder/weights/synthetic.h"

namespace deepencoder {
namespace {

namespace fs = std::filesystem;

constexpr size_t kSampleBytes = 64;  // read at the start, the middle and the end of a tensor

std::string Fingerprint(const std::vector<TensorSpec>& layout,
                        const std::map<std::string, StoredTensor, std::less<>>& tensors) {
  Fnv1a64 hash;
  for (const TensorSpec& spec : layout) {
    if (!spec.used) continue;
    const StoredTensor& tensor = tensors.find(spec.name)->second;
    hash.Add(spec.name);
    hash.Add(Name(tensor.dtype));
    for (const int64_t extent : tensor.shape) hash.AddInteger(static_cast<uint64_t>(extent));
    const size_t length = std::min(kSampleBytes, tensor.bytes);
    const size_t last = tensor.bytes - length;
    for (const size_t offset : {size_t{0}, last / 2, last}) {
      hash.Add({reinterpret_cast<const char*>(tensor.data + offset), length});
    }
  }
  return std::string(absl::StrCat(absl::Hex(hash.value(), absl::kZeroPad16)));
}

class FolderCheckpoint final : public Checkpoint {
 public:
  FolderCheckpoint(ModelConfig config, std::unique_ptr<CheckpointFiles> files,
                   const std::vector<TensorSpec>& layout)
      : config_(std::move(config)), files_(std::move(files)) {
    for (const TensorSpec& spec : layout) {
      const SafetensorsTensor& tensor = *files_->tensors().find(spec.name)->second.tensor;
      tensors_.emplace(spec.name, StoredTensor{*DTypeOfFile(tensor.dtype), tensor.shape,
                                               tensor.data, tensor.bytes});
    }
    fingerprint_ = Fingerprint(layout, tensors_);
    synthetic_ = LooksSynthetic(*this);
  }

  const ModelConfig& config() const override { return config_; }
  const std::map<std::string, StoredTensor, std::less<>>& tensors() const override {
    return tensors_;
  }
  const std::string& fingerprint() const override { return fingerprint_; }
  bool synthetic() const override { return synthetic_; }

  void Release(std::string_view name) const override {
    const auto found = files_->tensors().find(name);
    if (found == files_->tensors().end() || found->second.tensor == nullptr) return;
    found->second.file->Release(*found->second.tensor);
  }

  absl::Status CheckUnchanged() const override {
    for (const auto& file : files_->files()) {
      if (absl::Status status = file->CheckUnchanged(); !status.ok()) return status;
    }
    return absl::OkStatus();
  }

 private:
  ModelConfig config_;
  std::unique_ptr<CheckpointFiles> files_;
  std::map<std::string, StoredTensor, std::less<>> tensors_;
  std::string fingerprint_;
  bool synthetic_ = false;
};

}  // namespace

int64_t StoredTensor::Count() const {
  int64_t count = 1;
  for (const int64_t extent : shape) count *= extent;
  return count;
}

absl::StatusOr<std::unique_ptr<Checkpoint>> Checkpoint::Open(const std::string& folder) {
  std::error_code error;
  const fs::file_status type = fs::status(folder, error);
  if (type.type() == fs::file_type::not_found) {
    return absl::NotFoundError(absl::StrCat(folder, ": no such folder"));
  }
  if (type.type() != fs::file_type::directory) {
    return absl::InvalidArgumentError(
        absl::StrCat(folder, ": ", error ? error.message() : "not a folder"));
  }
  absl::StatusOr<ModelConfig> config = ReadModelConfig((fs::path(folder) / kConfigFile).string());
  if (!config.ok()) return config.status();
  const std::vector<TensorSpec> layout = CheckpointLayout(*config);
  absl::StatusOr<std::unique_ptr<CheckpointFiles>> files = CheckpointFiles::Open(folder, layout);
  if (!files.ok()) return files.status();
  if (absl::Status status = (*files)->CheckDepth(*config); !status.ok()) return status;
  for (const TensorSpec& spec : layout) {
    if (absl::Status status = (*files)->Check(spec); !status.ok()) return status;
  }
  return std::make_unique<FolderCheckpoint>(*std::move(config), *std::move(files), layout);
}

const StoredTensor& Checkpoint::Get(std::string_view name) const {
  const auto found = tensors().find(name);
  if (found == tensors().end()) {
    // The caller asked for a name that no layout has: a mistake of this program, not of its input.
    std::fprintf(stderr, "deepencoder: no tensor %.*s in the checkpoint's layout\n",
                 static_cast<int>(name.size()), name.data());
    std::abort();
  }
  return found->second;
}

std::vector<float> Checkpoint::GetFloats(std::string_view name) const {
  const StoredTensor& tensor = Get(name);
  std::vector<float> floats(static_cast<size_t>(tensor.Count()));
  ConvertToFloat(tensor.dtype, tensor.data, floats.data(), floats.size());
  return floats;
}

}  // namespace deepencoder
