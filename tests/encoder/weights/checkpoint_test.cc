#include "encoder/weights/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "encoder/model/checkpoint_layout.h"
#include "encoder/weights/safetensors.h"
#include "encoder/weights/synthetic.h"
#include "tests/encoder/weights/test_files.h"

namespace deepencoder {
namespace {

using std::string_literals::operator""s;
using testing::HasSubstr;

// A checkpoint of one block and one layer whose values are zero, to be spoilt before it is opened.
class CheckpointTest : public testing::Test {
 protected:
  CheckpointTest() {
    ModelConfig config;
    config.sam_depth = config.clip_layers = 1;
    tensors_ = TensorsOf(CheckpointLayout(config), "BF16");
    WriteFile(folder_.File("config.json"), ConfigJson(1, 1));
  }
  TestTensor& Tensor(std::string_view name) {
    return *std::find_if(tensors_.begin(), tensors_.end(),
                         [&](const TestTensor& tensor) { return tensor.name == name; });
  }
  void Remove(std::string_view name) {
    std::erase_if(tensors_, [&](const TestTensor& tensor) { return tensor.name == name; });
  }
  absl::StatusOr<std::unique_ptr<Checkpoint>> WriteAndOpen() {
    WriteZeroSafetensors(File(), tensors_);
    return Checkpoint::Open(folder_.path());
  }
  std::string File() const { return folder_.File("model.safetensors"); }

  void ExpectInvalid(const absl::Status& status, const std::vector<std::string>& parts) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    for (const std::string& part : parts) {
      EXPECT_THAT(std::string(status.message()), HasSubstr(part));
    }
  }

  TemporaryFolder folder_;
  std::vector<TestTensor> tensors_;
};

// As the folders of Hugging Face's cache are made.
TEST_F(CheckpointTest, FollowsLinksOfItsFiles) {
  ASSERT_TRUE(WriteAndOpen().ok());
  const TemporaryFolder blobs;
  for (const char* name : {"config.json", "model.safetensors"}) {
    std::filesystem::rename(folder_.File(name), blobs.File(name));
    std::filesystem::create_symlink(blobs.File(name), folder_.File(name));
  }
  const auto checkpoint = Checkpoint::Open(folder_.path());
  EXPECT_TRUE(checkpoint.ok()) << checkpoint.status();
}

TEST_F(CheckpointTest, ALinkToAnotherKindOfFileGivesNothingOfItAway) {
  const TemporaryFolder elsewhere;
  const std::string secret = "root:secret:0:0:some more of it, as many bytes as a header\n";
  WriteFile(elsewhere.File("passwd"), secret);
  uint64_t number = 0;  // that its first bytes make
  std::memcpy(&number, secret.data(), sizeof(number));
  for (const char* name : {"model.safetensors", "model.safetensors.index.json", "config.json"}) {
    ASSERT_TRUE(WriteAndOpen().ok());
    for (const std::string& target : {elsewhere.File("passwd"), elsewhere.path(), "/dev/zero"s}) {
      std::filesystem::remove(folder_.File(name));
      std::filesystem::create_symlink(target, folder_.File(name));
      const absl::Status status = Checkpoint::Open(folder_.path()).status();
      ExpectInvalid(status, {folder_.File(name)});
      for (const std::string& part : {"secret"s, std::to_string(number)}) {
        EXPECT_EQ(status.message().find(part), std::string_view::npos) << status;
      }
      if (target != elsewhere.File("passwd")) ExpectInvalid(status, {"not a regular file"});
    }
    std::filesystem::remove(folder_.File(name));
    WriteFile(folder_.File("config.json"), ConfigJson(1, 1));
  }
}

TEST_F(CheckpointTest, OpensASingleFileAndSkipsLanguageTensors) {
  tensors_.push_back({"model.embed_tokens.weight", "F32", {100, 1280}});
  tensors_.insert(tensors_.begin(), {"model.layers.0.mlp.gate.weight", "I16", {8}});
  const auto checkpoint = WriteAndOpen();
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  EXPECT_EQ((*checkpoint)->config().sam_depth, 1);
  EXPECT_EQ((*checkpoint)->tensors().size(), CheckpointLayout((*checkpoint)->config()).size());
  EXPECT_FALSE((*checkpoint)->tensors().contains("model.embed_tokens.weight"));
  EXPECT_FALSE((*checkpoint)->synthetic());
  EXPECT_THAT((*checkpoint)->fingerprint(), testing::MatchesRegex("[0-9a-f]{16}"));
}

TEST_F(CheckpointTest, NamesAMissingTensor) {
  Remove("model.sam_model.neck.2.weight");
  ExpectInvalid(WriteAndOpen().status(), {File(), "tensor model.sam_model.neck.2.weight is missing",
                                          "expected BF16, F16 or F32 [256, 256, 3, 3]"});
}

TEST_F(CheckpointTest, NamesATensorOfAnotherShape) {
  Tensor("model.sam_model.net_3.weight").shape = {896, 512, 3, 3};
  ExpectInvalid(WriteAndOpen().status(), {File(), "tensor model.sam_model.net_3.weight",
                                          "[1024, 512, 3, 3]", "found BF16 [896, 512, 3, 3]"});
}

TEST_F(CheckpointTest, NamesATensorOfAnotherType) {
  Tensor("model.projector.layers.bias").dtype = "U16";
  ExpectInvalid(WriteAndOpen().status(), {File(), "tensor model.projector.layers.bias",
                                          "BF16, F16 or F32", "found U16 [1280]"});
}

TEST_F(CheckpointTest, NamesATruncatedFileAndTensor) {
  WriteZeroSafetensors(File(), tensors_);
  std::filesystem::resize_file(File(), std::filesystem::file_size(File()) - 1);
  ExpectInvalid(Checkpoint::Open(folder_.path()).status(),
                {File(), "tensor model.view_seperator", "truncated"});
}

TEST_F(CheckpointTest, RefusesGlobalBlocksThatDoNotFitTheTensors) {
  WriteFile(folder_.File("config.json"), ConfigJson(1, 1, "[0]"));
  ExpectInvalid(WriteAndOpen().status(),
                {"blocks.0.attn.rel_pos_h", "[127, 64]", "found BF16 [27, 64]"});
}

TEST_F(CheckpointTest, RefusesADepthSmallerThanTheFile) {
  tensors_.push_back({"model.sam_model.blocks.1.norm1.weight", "BF16", {768}});
  ExpectInvalid(WriteAndOpen().status(),
                {"model.sam_model.blocks.1.norm1.weight", "config.json", "1 SAM blocks"});
}

TEST_F(CheckpointTest, RefusesADepthLargerThanTheFile) {
  WriteFile(folder_.File("config.json"), ConfigJson(1, 2));
  ExpectInvalid(WriteAndOpen().status(), {"model.vision_model.transformer.layers.1.", "missing"});
}

TEST_F(CheckpointTest, FoldersAndFilesThatAreNotThere) {
  EXPECT_EQ(Checkpoint::Open(folder_.File("none")).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(Checkpoint::Open(folder_.File("config.json")).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Checkpoint::Open(folder_.path()).status().code(), absl::StatusCode::kNotFound);
  std::filesystem::remove(folder_.File("config.json"));
  const absl::Status status = WriteAndOpen().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr("config.json"));
}

TEST_F(CheckpointTest, SeveralFilesNeedAnIndex) {
  WriteZeroSafetensors(folder_.File("a.safetensors"), tensors_);
  EXPECT_TRUE(Checkpoint::Open(folder_.path()).ok());  // one file of any name
  WriteZeroSafetensors(folder_.File("b.safetensors"), tensors_);
  ExpectInvalid(Checkpoint::Open(folder_.path()).status(), {"2 *.safetensors files", "index"});
}

// ---------------------------------------------------------------- shards

class ShardedCheckpointTest : public CheckpointTest {
 protected:
  // The first half of the tensors in one shard, the rest in another, language tensors in a third,
  // which does not exist.
  void WriteShards() {
    const auto middle = tensors_.begin() + static_cast<ptrdiff_t>(first_shard_);
    WriteZeroSafetensors(folder_.File("one.safetensors"), {tensors_.begin(), middle});
    WriteZeroSafetensors(folder_.File("two.safetensors"), {middle, tensors_.end()});
  }
  // An index that lists the tensors so; `changed` goes to `shard`.
  void WriteIndex(std::string_view changed = "", const std::string& shard = "") {
    std::string map = R"("lm_head.weight": "three.safetensors")";
    for (size_t i = 0; i < tensors_.size(); ++i) {
      const std::string usual = i < first_shard_ ? "\"one.safetensors\"" : "\"two.safetensors\"";
      map += ", \"" + tensors_[i].name + "\": " + (tensors_[i].name == changed ? shard : usual);
    }
    WriteFile(folder_.File("model.safetensors.index.json"),
              R"({"metadata": {"total_size": 1}, "weight_map": {)" + map + "}}");
  }
  absl::Status OpenStatus() { return Checkpoint::Open(folder_.path()).status(); }

  const size_t first_shard_ = tensors_.size() / 2;  // tensors in it
};

TEST_F(ShardedCheckpointTest, OpensOnlyTheShardsItNeeds) {
  WriteShards();
  WriteIndex();
  const auto checkpoint = Checkpoint::Open(folder_.path());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  EXPECT_EQ((*checkpoint)->tensors().size(), tensors_.size());
  EXPECT_EQ((*checkpoint)->GetFloats("model.view_seperator"), std::vector<float>(1280));
}

TEST_F(ShardedCheckpointTest, SameFingerprintAsASingleFile) {
  WriteShards();
  WriteIndex();
  const auto sharded = Checkpoint::Open(folder_.path());
  ASSERT_TRUE(sharded.ok()) << sharded.status();
  std::filesystem::remove(folder_.File("model.safetensors.index.json"));
  const auto single = WriteAndOpen();
  ASSERT_TRUE(single.ok()) << single.status();
  EXPECT_EQ((*sharded)->fingerprint(), (*single)->fingerprint());
}

TEST_F(ShardedCheckpointTest, ShardNamesStayInTheFolder) {
  WriteShards();
  for (const char* name : {"../one.safetensors", "/etc/passwd", "sub/one.safetensors", "..", ".",
                           "", "a\\\\b", "a\\u0000b"}) {
    WriteIndex("model.image_newline", "\"" + std::string(name) + "\"");
    ExpectInvalid(OpenStatus(), {"index.json", "tensor model.image_newline", "same folder"});
  }
  WriteIndex("model.image_newline", "7");
  ExpectInvalid(OpenStatus(), {"tensor model.image_newline", "found a number"});
}

TEST_F(ShardedCheckpointTest, NamesTheShardThatLacksATensor) {
  WriteShards();
  WriteIndex("model.image_newline", "\"one.safetensors\"");
  ExpectInvalid(OpenStatus(), {folder_.File("one.safetensors"),
                               "tensor model.image_newline is missing", "index.json says"});
}

TEST_F(ShardedCheckpointTest, NamesAMissingShardAndAnUnlistedTensor) {
  WriteShards();
  WriteIndex();
  std::filesystem::remove(folder_.File("two.safetensors"));
  EXPECT_EQ(OpenStatus().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(OpenStatus().message()), HasSubstr("two.safetensors"));

  WriteShards();
  tensors_.pop_back();  // view_seperator
  WriteIndex();
  ExpectInvalid(OpenStatus(), {"index.json", "tensor model.view_seperator is missing"});
}

TEST_F(ShardedCheckpointTest, RefusesAnIndexThatIsNone) {
  WriteShards();
  for (const char* index : {"", "{}", R"({"weight_map": []})", R"({"weight_map": {"a": "b"})"}) {
    WriteFile(folder_.File("model.safetensors.index.json"), index);
    ExpectInvalid(OpenStatus(), {"model.safetensors.index.json"});
  }
}

// ---------------------------------------------------------------- values

// A small synthetic checkpoint, written once.
class SyntheticCheckpointTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = std::make_unique<TemporaryFolder>();
    const absl::Status status =
        WriteSyntheticCheckpoint(folder_->path(), {.seed = 3, .sam_depth = 1, .clip_layers = 1});
    ASSERT_TRUE(status.ok()) << status;
  }
  static void TearDownTestSuite() { folder_.reset(); }

  // The checkpoint's tensors in another type, in a folder of their own.
  static void WriteConverted(const TemporaryFolder& to, DType type, const std::string& dtype) {
    const auto checkpoint = Checkpoint::Open(folder_->path());
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
    std::string data;
    std::vector<TestTensor> tensors;
    for (const auto& [name, tensor] : (*checkpoint)->tensors()) {
      const std::vector<float> floats = (*checkpoint)->GetFloats(name);
      std::vector<char> bytes(floats.size() * SizeOf(type));
      Convert(floats.data(), type, bytes.data(), floats.size());
      data.append(bytes.data(), bytes.size());
      tensors.push_back({name, dtype, tensor.shape});
    }
    const std::string path = to.File("model.safetensors");
    WriteZeroSafetensors(path, tensors);
    std::string content = ReadFile(path);
    content.replace(content.size() - data.size(), data.size(), data);
    WriteFile(path, content);
    WriteFile(to.File("config.json"), ConfigJson(1, 1));
  }

  static std::unique_ptr<TemporaryFolder> folder_;
};
std::unique_ptr<TemporaryFolder> SyntheticCheckpointTest::folder_;

TEST_F(SyntheticCheckpointTest, ValuesComeBackAndStayAfterRelease) {
  const auto checkpoint = Checkpoint::Open(folder_->path());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  EXPECT_TRUE((*checkpoint)->synthetic());
  for (const TensorSpec& spec : CheckpointLayout((*checkpoint)->config())) {
    const StoredTensor& tensor = (*checkpoint)->Get(spec.name);
    EXPECT_EQ(tensor.shape, spec.shape);
    EXPECT_EQ(tensor.Count(), spec.Count());
    EXPECT_EQ(tensor.bytes, static_cast<size_t>(spec.Count()) * 2);
    std::vector<uint16_t> expected(static_cast<size_t>(spec.Count()));
    SyntheticValues(spec, 3, 0, expected);
    std::vector<float> floats(expected.size());
    ConvertToFloat(DType::kBf16, expected.data(), floats.data(), floats.size());
    ASSERT_EQ((*checkpoint)->GetFloats(spec.name), floats) << spec.name;
    (*checkpoint)->Release(spec.name);
    ASSERT_EQ((*checkpoint)->GetFloats(spec.name), floats) << spec.name;
  }
}

TEST_F(SyntheticCheckpointTest, ReadsHalfAndSinglePrecision) {
  const auto bf16 = Checkpoint::Open(folder_->path());
  ASSERT_TRUE(bf16.ok()) << bf16.status();
  for (const auto& [type, dtype] : {std::pair{DType::kFp16, "F16"}, {DType::kFp32, "F32"}}) {
    const TemporaryFolder converted;
    ASSERT_NO_FATAL_FAILURE(WriteConverted(converted, type, dtype));
    const auto checkpoint = Checkpoint::Open(converted.path());
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
    for (const auto& [name, tensor] : (*checkpoint)->tensors()) {
      ASSERT_EQ(tensor.dtype, type);
      std::vector<float> expected = (*bf16)->GetFloats(name);
      for (float& value : expected) value = RoundTo(type, value);
      ASSERT_EQ((*checkpoint)->GetFloats(name), expected) << name;
    }
    EXPECT_TRUE((*checkpoint)->synthetic());
    EXPECT_NE((*checkpoint)->fingerprint(), (*bf16)->fingerprint());
  }
}

TEST_F(SyntheticCheckpointTest, FingerprintTellsSeedsApartAndIsStable) {
  const TemporaryFolder same, other;
  const SyntheticOptions options{.seed = 3, .sam_depth = 1, .clip_layers = 1};
  ASSERT_TRUE(WriteSyntheticCheckpoint(same.path(), options).ok());
  ASSERT_TRUE(
      WriteSyntheticCheckpoint(other.path(), {.seed = 4, .sam_depth = 1, .clip_layers = 1}).ok());
  const auto fingerprint = [](const std::string& folder) {
    const auto checkpoint = Checkpoint::Open(folder);
    EXPECT_TRUE(checkpoint.ok()) << checkpoint.status();
    return (*checkpoint)->fingerprint();
  };
  EXPECT_EQ(fingerprint(folder_->path()), fingerprint(same.path()));
  EXPECT_NE(fingerprint(folder_->path()), fingerprint(other.path()));
}

TEST_F(SyntheticCheckpointTest, ChangedValuesAreNotSynthetic) {
  const TemporaryFolder changed;
  const std::string name = "model-00001-of-000001.safetensors";
  std::string content = ReadFile(folder_->File(name));
  // view_seperator is the last tensor: halve its values by lowering every exponent.
  for (size_t i = content.size() - 2 * 1280; i < content.size(); i += 2) {
    uint16_t bits = 0;
    std::memcpy(&bits, &content[i], 2);
    bits = FloatToBf16(Bf16ToFloat(bits) / 2);
    std::memcpy(&content[i], &bits, 2);
  }
  WriteFile(changed.File(name), content);
  WriteFile(changed.File("config.json"), ConfigJson(1, 1));
  const auto checkpoint = Checkpoint::Open(changed.path());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  EXPECT_FALSE((*checkpoint)->synthetic());
}

TEST_F(SyntheticCheckpointTest, AskingForATensorOfNoLayoutIsFatal) {
  const auto checkpoint = Checkpoint::Open(folder_->path());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  EXPECT_DEATH((*checkpoint)->Get("model.no_such"), "no tensor model.no_such");
}

}  // namespace
}  // namespace deepencoder
