#include "client/tensor_file.h"

#include <gmock/gmock.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>

#include "client/flags.h"
#include "tests/work_folder.h"

namespace deepencoder::client {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string Contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

Embeddings Rows(DType dtype, int rows, int width) {
  Embeddings embeddings;
  embeddings.dtype = dtype;
  embeddings.rows = rows;
  embeddings.width = width;
  std::string data;
  for (size_t i = 0; i < rows * width * SizeOf(dtype); ++i) {
    data += static_cast<char>('a' + i % 26);
  }
  embeddings.Own(std::move(data));
  return embeddings;
}

TEST(TensorFileTest, Npy) {
  const std::string path = WorkFolder() + "/rows.npy";
  const Embeddings rows = Rows(DType::kFp32, 3, 5);
  ASSERT_TRUE(WriteNpy(path, rows).ok());
  const std::string file = Contents(path);
  ASSERT_EQ(file.substr(0, 8), std::string("\x93NUMPY\x01\x00", 8));
  uint16_t length;
  std::memcpy(&length, file.data() + 8, sizeof(length));
  EXPECT_EQ((10 + length) % 64, 0);
  const std::string header = file.substr(10, length);
  EXPECT_THAT(header, HasSubstr("'descr': '<f4'"));
  EXPECT_THAT(header, HasSubstr("'fortran_order': False"));
  EXPECT_THAT(header, HasSubstr("'shape': (3, 5)"));
  EXPECT_EQ(header.back(), '\n');
  EXPECT_EQ(file.substr(10 + length), rows.data);

  ASSERT_TRUE(WriteNpy(path, Rows(DType::kFp16, 1, 2)).ok());
  EXPECT_THAT(Contents(path), HasSubstr("'<f2'"));
  EXPECT_EQ(WriteNpy(path, Rows(DType::kBf16, 1, 2)).code(), absl::StatusCode::kInvalidArgument);
}

TEST(TensorFileTest, Safetensors) {
  const std::string path = WorkFolder() + "/rows.safetensors";
  const Embeddings first = Rows(DType::kBf16, 2, 3), second = Rows(DType::kFp32, 1, 3);
  ASSERT_TRUE(WriteSafetensors(path, {{"a \"b\"", &first}, {"c", &second}}).ok());
  const std::string file = Contents(path);
  uint64_t length;
  std::memcpy(&length, file.data(), sizeof(length));
  EXPECT_EQ(length % 8, 0);
  std::string header = file.substr(8, length);
  header.erase(header.find_last_not_of(' ') + 1);
  EXPECT_EQ(header, R"({"a \"b\"":{"dtype":"BF16","shape":[2,3],"data_offsets":[0,12]},)"
                    R"("c":{"dtype":"F32","shape":[1,3],"data_offsets":[12,24]}})");
  EXPECT_EQ(file.substr(8 + length), std::string(first.data) + std::string(second.data));
}

TEST(TensorFileTest, WhatCannotBeWrittenLeavesNothingBehind) {
  const std::string path = testing::TempDir() + "no/such/folder/x.npy";
  const absl::Status status = WriteNpy(path, Rows(DType::kFp32, 1, 1));
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr(path));
  EXPECT_THAT(std::string(status.message()), HasSubstr("No such file or directory"));
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(FlagSetTest, ParsesFlagsAndWords) {
  std::string text;
  int number = 1;
  absl::Duration duration;
  bool on = false;
  FlagSet flags;
  flags.AddText("text", "T", "Some text.\nOn two lines.", &text);
  flags.AddInteger("number", "A number.", &number, 1, 9);
  flags.AddDuration("wait", "A time.", &duration);
  flags.AddSwitch("on", "A switch.", &on);
  std::vector<std::string> words;
  ASSERT_TRUE(flags
                  .Parse({"a", "--text", "x y", "--number=9", "b", "--wait=1.5s", "--on", "-", "--",
                          "--number"},
                         &words)
                  .ok());
  EXPECT_EQ(text, "x y");
  EXPECT_EQ(number, 9);
  EXPECT_EQ(duration, absl::Milliseconds(1500));
  EXPECT_TRUE(on);
  EXPECT_THAT(words, ElementsAre("a", "b", "-", "--number"));
  EXPECT_THAT(flags.Help(), HasSubstr("--number=N"));

  const auto error_of = [&](const std::string& arg) {
    return std::string(flags.Parse({arg}, &words).message());
  };
  EXPECT_THAT(error_of("--nubmer=3"), HasSubstr("unknown flag --nubmer"));
  EXPECT_THAT(error_of("-n"), HasSubstr("unknown flag -n"));
  EXPECT_THAT(error_of("--number=10"), HasSubstr("1 to 9"));
  EXPECT_THAT(error_of("--number=1x"), HasSubstr("--number: '1x'"));
  EXPECT_THAT(error_of("--text"), HasSubstr("needs a value"));
  EXPECT_THAT(error_of("--wait=-1s"), HasSubstr("duration over 0"));
  EXPECT_THAT(error_of("--on=perhaps"), HasSubstr("true or false"));
}

}  // namespace
}  // namespace deepencoder::client
