// The files of a checkpoint folder and where each tensor lies in them: one *.safetensors file, or
// shards listed by model.safetensors.index.json.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "encoder/base/dtype.h"
#include "encoder/model/checkpoint_layout.h"
#include "encoder/model/config.h"
#include "encoder/weights/safetensors.h"

namespace deepencoder {

// File names of a checkpoint.
inline constexpr std::string_view kConfigFile = "config.json";
inline constexpr std::string_view kIndexFile = "model.safetensors.index.json";
inline constexpr std::string_view kSingleFile = "model.safetensors";

struct TensorLocation {
  const SafetensorsFile* file;  // null: in a shard that holds no wanted tensor and was not opened
  const SafetensorsTensor* tensor;  // null: as above, or the index names it and the file lacks it
};

class CheckpointFiles {
 public:
  // Opens the files that hold tensors of `wanted`. With an index, other shards need not exist.
  // Errors: NOT_FOUND, INVALID_ARGUMENT, starting with the path.
  static absl::StatusOr<std::unique_ptr<CheckpointFiles>> Open(
      const std::string& folder, const std::vector<TensorSpec>& wanted);

  // By tensor name: every tensor that the index or the single file lists.
  const std::map<std::string, TensorLocation, std::less<>>& tensors() const { return tensors_; }
  const std::vector<std::unique_ptr<SafetensorsFile>>& files() const { return files_; }

  // What is wrong with one tensor of the layout, or OK: INVALID_ARGUMENT naming file, tensor,
  // expected and found.
  absl::Status Check(const TensorSpec& spec) const;
  // The same for tensors of blocks and layers that `config` does not have: a depth that is too
  // small would otherwise go unnoticed.
  absl::Status CheckDepth(const ModelConfig& config) const;

 private:
  absl::Status OpenSingle(const std::string& folder);
  absl::Status OpenShards(const std::string& folder, const std::vector<TensorSpec>& wanted);

  std::string source_;  // the index or the single file, for messages
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::map<std::string, TensorLocation, std::less<>> tensors_;
};

// The encoder's type for a type as files name it: "BF16", "F16", "F32".
std::optional<DType> DTypeOfFile(std::string_view name);

}  // namespace deepencoder
