#include "client/checkpoint_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include "encoder/model/checkpoint_layout.h"
#include "tests/encoder/weights/test_files.h"

namespace deepencoder {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

struct Result {
  int code;
  std::string out, err;
};

Result RunWith(const std::vector<std::string>& args) {
  std::ostringstream out, err;
  const int code = RunCheckpointCommand(args, out, err);
  return {code, out.str(), err.str()};
}

std::vector<TestTensor> SmallTensors(const std::string& dtype) {
  ModelConfig config;
  config.sam_depth = config.clip_layers = 1;
  return TensorsOf(CheckpointLayout(config), dtype);
}

TEST(CheckpointCommandTest, Help) {
  for (const std::vector<std::string>& args :
       {std::vector<std::string>{"--help"}, {"inspect", "-h"}, {"synthesize", "x", "--help"}}) {
    const Result result = RunWith(args);
    EXPECT_EQ(result.code, 0);
    EXPECT_THAT(result.out, AllOf(HasSubstr("inspect DIR"), HasSubstr("synthesize DIR")));
    EXPECT_THAT(result.err, IsEmpty());
  }
}

TEST(CheckpointCommandTest, WrongUsage) {
  const TemporaryFolder folder;
  const struct {
    std::vector<std::string> args;
    const char* reason;
  } cases[] = {
      {{}, "expected inspect or synthesize"},
      {{"look"}, "unknown command \"look\""},
      {{"inspect"}, "expected one folder, found 0"},
      {{"inspect", "a", "b"}, "expected one folder, found 2"},
      {{"inspect", "a", "--seed", "1"}, "unknown option --seed"},
      {{"synthesize", "--seed", "1"}, "expected one folder, found 0"},
      {{"synthesize", folder.path(), "--seed"}, "--seed needs a value"},
      {{"synthesize", folder.path(), "--seed", "x"}, "--seed: expected a whole number"},
      {{"synthesize", folder.path(), "--seed=99999999999999999999"}, "--seed: expected"},
      {{"synthesize", folder.path(), "--sam-depth=0"},
       "--sam-depth: expected a whole number from 1"},
      {{"synthesize", folder.path(), "--clip-layers", "2x"}, "found \"2x\""},
  };
  for (const auto& c : cases) {
    const Result result = RunWith(c.args);
    EXPECT_EQ(result.code, 2) << c.reason;
    EXPECT_THAT(result.err, AllOf(HasSubstr(c.reason), HasSubstr("Usage:")));
    EXPECT_THAT(result.out, IsEmpty());
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(CheckpointCommandTest, SynthesizeThenInspect) {
  const TemporaryFolder folder;
  const Result made =
      RunWith({"synthesize", "--seed=-7", folder.path(), "--sam-depth", "3", "--clip-layers=1"});
  EXPECT_EQ(made.code, 0) << made.err;
  EXPECT_THAT(made.out, AllOf(HasSubstr("seed -7"), HasSubstr("mean nothing")));

  const Result seen = RunWith({"inspect", folder.path()});
  EXPECT_EQ(seen.code, 0) << seen.err;
  EXPECT_THAT(
      seen.out,
      AllOf(HasSubstr("SAM 3 blocks, global attention in 2; CLIP 1 layers"),
            HasSubstr("74: 74 of the 74 of the vision encoder, 0 others"),
            HasSubstr("types        BF16 x 74\n"), HasSubstr("95,597,312\n"),
            HasSubstr("unused       model.vision_model.embeddings.patch_embedding.weight\n"),
            Not(HasSubstr("extra")), HasSubstr("fingerprint  "),
            HasSubstr("values       synthetic")));
  EXPECT_THAT(seen.err, IsEmpty());
}

TEST(CheckpointCommandTest, InspectListsEveryProblemAndExtraTensors) {
  const TemporaryFolder folder;
  WriteFile(folder.File("config.json"), ConfigJson(1, 1));
  std::vector<TestTensor> tensors = SmallTensors("F16");
  tensors.back().shape = {1281};         // view_seperator
  tensors.front().name = "model.other";  // pos_embed
  tensors.push_back({"model.vision_model.embeddings.position_ids", "BF16", {257}});
  WriteZeroSafetensors(folder.File("model.safetensors"), tensors);

  const Result result = RunWith({"inspect", folder.path()});
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.out,
              AllOf(HasSubstr("45 of the 46 of the vision encoder, 1 others"),
                    HasSubstr("extra        model.vision_model.embeddings.position_ids"),
                    Not(HasSubstr("fingerprint"))));
  EXPECT_THAT(result.err,
              AllOf(HasSubstr("tensor model.sam_model.pos_embed is missing"),
                    HasSubstr("tensor model.view_seperator: expected BF16, F16 or F32 [1280], "
                              "found F16 [1281]")));
}

TEST(CheckpointCommandTest, InspectOfZerosIsNotSynthetic) {
  const TemporaryFolder folder;
  WriteFile(folder.File("config.json"), ConfigJson(1, 1));
  WriteZeroSafetensors(folder.File("model.safetensors"), SmallTensors("F32"));
  const Result result = RunWith({"inspect", folder.path()});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("F32 x 46"), HasSubstr("not synthetic")));
}

TEST(CheckpointCommandTest, FailuresNameTheFile) {
  const TemporaryFolder folder;
  const Result none = RunWith({"inspect", folder.File("none")});
  EXPECT_EQ(none.code, 1);
  EXPECT_THAT(none.err, HasSubstr("none/config.json: no such file"));

  WriteFile(folder.File("file"), "");
  const Result blocked = RunWith({"synthesize", folder.File("file")});
  EXPECT_EQ(blocked.code, 1);
  EXPECT_THAT(blocked.err, HasSubstr(folder.File("file")));
}

}  // namespace
}  // namespace deepencoder
