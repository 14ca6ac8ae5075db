#include "conformance.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "encoder/cpu/deep_encoder.h"
#include "encoder/cpu/parallel.h"
#include "encoder/image/decode.h"
#include "encoder/model/config.h"
#include "encoder/weights/json.h"
#include "encoder/weights/safetensors.h"
#include "encoder/weights/synthetic.h"

namespace deepencoder {
namespace {

constexpr double kFp32Bar = 4e-6;

std::string ReadText(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file) << path;
  return {std::istreambuf_iterator<char>(file), {}};
}

double Bar(const ConformanceCase& what, const std::string& tensor, DType type) {
  if (type == DType::kFp32) return kFp32Bar;
  return ErrorOfReference(what.folder + "/" + what.index, what.file, tensor, type);
}

}  // namespace

std::string ConformanceData() { return DEEPENCODER_TEST_DATA "/encoder"; }

std::unique_ptr<Checkpoint> SyntheticCheckpoint(const std::string& folder, int sam_depth,
                                                int clip_layers) {
  if (!std::filesystem::exists(folder + "/config.json")) {
    const absl::Status status =
        WriteSyntheticCheckpoint(folder, {.sam_depth = sam_depth, .clip_layers = clip_layers});
    EXPECT_TRUE(status.ok()) << status;
  }
  absl::StatusOr<std::unique_ptr<Checkpoint>> checkpoint = Checkpoint::Open(folder);
  EXPECT_TRUE(checkpoint.ok()) << checkpoint.status();
  return checkpoint.ok() ? *std::move(checkpoint) : nullptr;
}

const Checkpoint& MiniCheckpoint() {
  // Mapped files outlive their names, so nothing is left behind.
  static const std::unique_ptr<Checkpoint> checkpoint = [] {
    std::string folder = testing::TempDir() + "/mini_checkpoint_XXXXXX";
    EXPECT_NE(mkdtemp(folder.data()), nullptr);
    std::unique_ptr<Checkpoint> opened = SyntheticCheckpoint(folder, 3, 2);
    std::filesystem::remove_all(folder);
    return opened;
  }();
  return *checkpoint;
}

std::vector<float> ReadTensor(const std::string& path, const std::string& name) {
  const absl::StatusOr<std::unique_ptr<SafetensorsFile>> file = SafetensorsFile::Open(path);
  EXPECT_TRUE(file.ok()) << file.status();
  const SafetensorsTensor& tensor = (*file)->tensors().at(name);
  EXPECT_TRUE(tensor.dtype == "F32" || tensor.dtype == "F16") << tensor.dtype;
  const DType type = tensor.dtype == "F32" ? DType::kFp32 : DType::kFp16;
  std::vector<float> values(tensor.bytes / SizeOf(type));
  ConvertToFloat(type, tensor.data, values.data(), values.size());
  return values;
}

bool HasTensor(const std::string& path, const std::string& name) {
  const absl::StatusOr<std::unique_ptr<SafetensorsFile>> file = SafetensorsFile::Open(path);
  EXPECT_TRUE(file.ok()) << file.status();
  return (*file)->tensors().contains(name);
}

double ErrorOfReference(const std::string& index, const std::string& file,
                        const std::string& tensor, DType type) {
  const absl::StatusOr<JsonObject> root =
      ParseJson("{\"files\": " + ReadText(index) + "}", size_t{1} << 20);
  EXPECT_TRUE(root.ok()) << root.status();
  for (const JsonValue& entry : FindJson(*root, "files")->list_value().values()) {
    const JsonObject& fields = entry.struct_value();
    if (FindJson(fields, "file")->string_value() != file) continue;
    return (*FindJson(fields, {"error_of_reference", tensor, Name(type)}))->number_value();
  }
  ADD_FAILURE() << file << " is not in " << index;
  return 0;
}

RgbImage ReadImage(const std::string& path) {
  const std::string file = ReadText(path);
  absl::StatusOr<RgbImage> image = DecodeImage(std::as_bytes(std::span(file)), {});
  EXPECT_TRUE(image.ok()) << path << ": " << image.status();
  return *std::move(image);
}

double RelativeError(std::span<const float> ours, std::span<const float> reference) {
  EXPECT_EQ(ours.size(), reference.size());
  double error = 0, norm = 0;
  for (size_t i = 0; i < reference.size(); ++i) {
    const double difference = static_cast<double>(ours[i]) - reference[i];
    error += difference * difference;
    norm += static_cast<double>(reference[i]) * reference[i];
  }
  return std::sqrt(error / norm);
}

void ExpectConformance(const Checkpoint& checkpoint, const ConformanceCase& what, DType type,
                       cpu::Isa isa) {
  SCOPED_TRACE(what.file + " in " + std::string(Name(type)));
  const std::string path = what.folder + "/" + what.file;
  const RgbImage view = ReadImage(path + ".png");
  const int side = view.width();
  ASSERT_EQ(side, view.height());

  const cpu::ThreadScope threads(2);
  const cpu::DeepEncoder encoder(checkpoint, cpu::Compute::For(type, isa), std::vector<int>{side});
  cpu::Workspace workspace = encoder.NewWorkspace(2);
  const size_t tokens = static_cast<size_t>(OutputGridOf(side)) * OutputGridOf(side);
  std::vector<float> rows;
  encoder.Encode(
      side, std::vector<const uint8_t*>{view.data()}, workspace,
      [&](size_t, const float* result) { rows.assign(result, result + tokens * kEmbeddingWidth); });

  const std::string values = path + ".safetensors";
  const auto expect = [&](const std::string& tensor, std::span<const float> ours) {
    const double error = RelativeError(ours, ReadTensor(values, tensor));
    const double bar = Bar(what, tensor, type);
    EXPECT_LE(error, bar) << tensor;
    // Shown when it passes too: how near a bar is matters.
    std::cout << what.file << " " << Name(type) << " " << tensor << ": " << error << " of " << bar
              << "\n";
  };
  if (HasTensor(values, "sam")) expect("sam", {workspace.features, tokens * kNet3Width});
  if (HasTensor(values, "clip")) expect("clip", {workspace.clip + kClipWidth, tokens * kClipWidth});
  expect("tokens", rows);
}

}  // namespace deepencoder
