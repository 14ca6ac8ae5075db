#include "encoder/weights/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "tests/encoder/weights/test_files.h"

namespace deepencoder {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

class SafetensorsTest : public testing::Test {
 protected:
  absl::StatusOr<std::unique_ptr<SafetensorsFile>> OpenBytes(std::string_view content) {
    // A new name each time: a mapped file must not change.
    path_ = folder_.File(std::to_string(++files_) + ".safetensors");
    WriteFile(path_, content);
    return SafetensorsFile::Open(path_);
  }
  // Expects INVALID_ARGUMENT that starts with the path and holds `reason`.
  void ExpectMalformed(std::string_view content, std::string_view reason) {
    const auto file = OpenBytes(content);
    EXPECT_EQ(file.status().code(), absl::StatusCode::kInvalidArgument) << reason;
    EXPECT_THAT(std::string(file.status().message()),
                AllOf(StartsWith(path_ + ": "), HasSubstr(std::string(reason))));
  }

  TemporaryFolder folder_;
  std::string path_;
  int files_ = 0;
};

TEST_F(SafetensorsTest, ReadsTensorsInAnyOrderWithMetadataAndSpaces) {
  const auto file = OpenBytes(Safetensors(
      R"({"__metadata__": {"format": "pt"},
          "b": {"dtype": "F32", "shape": [2], "data_offsets": [6, 14]},
          "a": {"shape": [1, 3], "data_offsets": [0, 6], "dtype": "BF16"},
          "empty": {"dtype": "I64", "shape": [4, 0], "data_offsets": [6, 6]},
          "scalar": {"dtype": "U8", "shape": [], "data_offsets": [14, 15]}}   )",
      "abcdefABCDEFGH!"));
  ASSERT_TRUE(file.ok()) << file.status();
  const auto& tensors = (*file)->tensors();
  ASSERT_EQ(tensors.size(), 4u);
  const SafetensorsTensor& a = tensors.at("a");
  EXPECT_EQ(a.dtype, "BF16");
  EXPECT_THAT(a.shape, ElementsAre(1, 3));
  EXPECT_EQ(std::string_view(reinterpret_cast<const char*>(a.data), a.bytes), "abcdef");
  const SafetensorsTensor& b = tensors.at("b");
  EXPECT_EQ(std::string_view(reinterpret_cast<const char*>(b.data), b.bytes), "ABCDEFGH");
  EXPECT_EQ(tensors.at("empty").bytes, 0u);
  EXPECT_EQ(tensors.at("scalar").bytes, 1u);
}

TEST_F(SafetensorsTest, ReadsEveryTypeOfTheFormat) {
  const struct {
    const char* dtype;
    int bits;
  } types[] = {{"BOOL", 8},    {"U8", 8},   {"I8", 8},   {"F8_E5M2", 8}, {"F8_E4M3", 8},
               {"F8_E8M0", 8}, {"I16", 16}, {"U16", 16}, {"F16", 16},    {"BF16", 16},
               {"I32", 32},    {"U32", 32}, {"F32", 32}, {"F64", 64},    {"I64", 64},
               {"U64", 64},    {"C64", 64}, {"F4", 4},   {"F6_E2M3", 6}, {"F6_E3M2", 6}};
  for (const auto& type : types) {
    const std::string bytes = std::to_string(type.bits);  // of 8 elements
    const auto file =
        OpenBytes(Safetensors("{\"t\":{\"dtype\":\"" + std::string(type.dtype) +
                                  "\",\"shape\":[8],\"data_offsets\":[0," + bytes + "]}}",
                              std::string(type.bits, 'x')));
    EXPECT_TRUE(file.ok()) << file.status();
  }
}

TEST_F(SafetensorsTest, AFileWithoutTensorsIsFine) {
  const auto file = OpenBytes(Safetensors("{}", ""));
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_TRUE((*file)->tensors().empty());
}

TEST_F(SafetensorsTest, RefusesAWrongLength) {
  const auto with_length = [](uint64_t length, std::string_view rest) {
    std::string file(sizeof(length), '\0');
    std::memcpy(file.data(), &length, sizeof(length));
    return file.append(rest);
  };
  ExpectMalformed("", "too few");
  ExpectMalformed("1234567", "too few");
  ExpectMalformed(with_length(0, ""), "does not start with '{'");
  ExpectMalformed(with_length(0, "{}"), "does not start with '{'");
  ExpectMalformed(with_length(3, "{}"), "goes past");
  ExpectMalformed(with_length(1, "{}"), "not a JSON object");
  ExpectMalformed(with_length(UINT64_MAX, "{}"), "goes past");
  ExpectMalformed(with_length(uint64_t{1} << 63, "{}"), "goes past");
  const uint64_t over = SafetensorsFile::kMaxHeaderBytes + 1;
  ExpectMalformed(with_length(over, std::string(over, ' ')), "over the limit of 16777216");
}

TEST_F(SafetensorsTest, RefusesAMalformedHeader) {
  // One tensor "t" with these fields, in front of 8 bytes of data.
  const auto fields = [](std::string_view text) {
    return Safetensors("{\"t\":" + std::string(text) + "}", "12345678");
  };
  const struct {
    std::string_view entry, reason;
  } cases[] = {
      {R"(1)", "expected an object, found a number"},
      {R"([])", "expected an object, found an array"},
      {R"({})", "dtype, shape and data_offsets alone"},
      {R"({"shape":[4],"data_offsets":[0,8]})", "dtype, shape and data_offsets alone"},
      {R"({"dtype":"F16","data_offsets":[0,8]})", "dtype, shape and data_offsets alone"},
      {R"({"dtype":"F16","shape":[4]})", "dtype, shape and data_offsets alone"},
      {R"({"dtype":"F16","shape":[4],"data_offsets":[0,8],"x":1})", "data_offsets alone"},
      {R"({"dtype":16,"shape":[4],"data_offsets":[0,8]})", "dtype: expected a string"},
      {R"({"dtype":"f16","shape":[4],"data_offsets":[0,8]})", "unknown dtype \"f16\""},
      {R"({"dtype":"","shape":[4],"data_offsets":[0,8]})", "unknown dtype"},
      {R"({"dtype":"F16","shape":4,"data_offsets":[0,8]})", "shape: expected an array"},
      {R"({"dtype":"F16","shape":[-4],"data_offsets":[0,8]})", "shape: expected a whole number"},
      {R"({"dtype":"F16","shape":[-2,-2],"data_offsets":[0,8]})", "found -2"},
      {R"({"dtype":"F16","shape":[1.5],"data_offsets":[0,8]})", "found 1.5"},
      {R"({"dtype":"F16","shape":["4"],"data_offsets":[0,8]})", "found a string"},
      {R"({"dtype":"F16","shape":[null],"data_offsets":[0,8]})", "found null"},
      {R"({"dtype":"F16","shape":[[4]],"data_offsets":[0,8]})", "found an array"},
      {R"({"dtype":"F16","shape":[1e30],"data_offsets":[0,8]})", "shape: expected a whole number"},
      {R"({"dtype":"F16","shape":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,4],"data_offsets":[0,8]})",
       "at most 16"},
      // 2^32 * 2^32 elements wrap to 0 in 64 bits, 2^31 * 2^31 * 4 too; 2^60 * 16 bits as well.
      {R"({"dtype":"F16","shape":[4294967296,4294967296],"data_offsets":[0,0]})", "below 2^61"},
      {R"({"dtype":"F16","shape":[2147483648,2147483648,4],"data_offsets":[0,0]})", "below 2^61"},
      {R"({"dtype":"F16","shape":[1073741824,1073741824],"data_offsets":[0,0]})", "below 2^61"},
      {R"({"dtype":"F4","shape":[3],"data_offsets":[0,1]})", "not a whole number of bytes"},
      {R"({"dtype":"F16","shape":[4],"data_offsets":8})", "data_offsets: expected an array"},
      {R"({"dtype":"F16","shape":[4],"data_offsets":[8]})", "expected [begin, end]"},
      {R"({"dtype":"F16","shape":[4],"data_offsets":[]})", "expected [begin, end]"},
      {R"({"dtype":"F16","shape":[4],"data_offsets":[0,4,8]})", "at most 2"},
      {R"({"dtype":"F16","shape":[4],"data_offsets":[8,0]})", "begin <= end"},
      {R"({"dtype":"F16","shape":[4],"data_offsets":[-8,0]})", "found -8"},
      {R"({"dtype":"F16","shape":[4],"data_offsets":[0,8.5]})", "found 8.5"},
      {R"({"dtype":"F16","shape":[4],"data_offsets":["0","8"]})", "found a string"},
      {R"({"dtype":"F16","shape":[4],"data_offsets":[8,16]})", "past the file's 8 bytes"},
      {R"({"dtype":"F16","shape":[4],"data_offsets":[0,9007199254740992]})", "truncated"},
      {R"({"dtype":"F16","shape":[4],"data_offsets":[0,1e19]})", "data_offsets: expected"},
      {R"({"dtype":"F16","shape":[3],"data_offsets":[0,8]})", "F16 [3] needs 6"},
      {R"({"dtype":"F16","shape":[0],"data_offsets":[0,8]})", "F16 [0] needs 0"},
      {R"({"dtype":"F16","shape":[],"data_offsets":[0,8]})", "F16 [] needs 2"},
      {R"({"dtype":"F32","shape":[4],"data_offsets":[0,8]})", "F32 [4] needs 16"},
      {R"({"dtype":"F16","shape":[3],"data_offsets":[0,6]})", "end at byte 6"},
      {R"({"dtype":"F16","shape":[3],"data_offsets":[2,8]})", "begins at byte 2"},
  };
  for (const auto& c : cases) ExpectMalformed(fields(c.entry), c.reason);
  ExpectMalformed(fields(cases[8].entry), "tensor t: ");  // names it

  ExpectMalformed(Safetensors("{\"t\":", "12345678"), "not a JSON object");
  ExpectMalformed(Safetensors("[]", ""), "does not start with '{'");
  ExpectMalformed(Safetensors(" {}", ""), "does not start with '{'");
  ExpectMalformed(Safetensors("{}x", ""), "not a JSON object");
  ExpectMalformed(Safetensors("{\"a\":{},\"a\":{}}", ""), "already set");
  ExpectMalformed(Safetensors("{}", "data"),
                  "the tensors end at byte 0 of the data, the file at 4");
  ExpectMalformed(Safetensors("{\"a\":" + std::string(100'000, '['), ""), "nested deeper");
}

TEST_F(SafetensorsTest, RefusesOverlapsAndHoles) {
  const auto two = [](std::string_view a, std::string_view b) {
    return Safetensors(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":)" + std::string(a) +
                           R"(},"b":{"dtype":"U8","shape":[4],"data_offsets":)" + std::string(b) +
                           "}}",
                       "12345678");
  };
  EXPECT_TRUE(OpenBytes(two("[0,4]", "[4,8]")).ok());
  EXPECT_TRUE(OpenBytes(two("[4,8]", "[0,4]")).ok());
  ExpectMalformed(two("[0,4]", "[0,4]"), "overlap");
  ExpectMalformed(two("[0,4]", "[3,7]"), "tensor b: begins at byte 3");
  ExpectMalformed(two("[3,7]", "[0,4]"), "tensor a: begins at byte 3");
  ExpectMalformed(Safetensors(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},
                                  "b":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})",
                              "12345678"),
                  "a hole");
}

TEST_F(SafetensorsTest, RefusesEveryTruncation) {
  const std::string whole =
      Safetensors(R"({"a":{"dtype":"F16","shape":[4],"data_offsets":[0,8]}})", "12345678");
  ASSERT_TRUE(OpenBytes(whole).ok());
  for (size_t size = 0; size < whole.size(); ++size) {
    EXPECT_EQ(OpenBytes(whole.substr(0, size)).status().code(), absl::StatusCode::kInvalidArgument)
        << size;
  }
}

// No change of a byte may crash; what it opens lies within the file.
TEST_F(SafetensorsTest, SurvivesAnyChangedByte) {
  const std::string whole =
      Safetensors(R"({"a":{"dtype":"F16","shape":[2,2],"data_offsets":[0,8]},)"
                  R"("b":{"dtype":"U8","shape":[],"data_offsets":[8,9]}})",
                  "123456789");
  std::mt19937 random(3);
  int opened = 0;
  for (int round = 0; round < 3000; ++round) {
    std::string changed = whole;
    for (int i = 0; i <= round % 3; ++i) {
      changed[random() % changed.size()] = static_cast<char>(random() % 256);
    }
    const auto file = OpenBytes(changed);
    std::filesystem::remove(path_);
    if (!file.ok()) continue;
    ++opened;
    size_t bytes = 0;
    for (const auto& [name, tensor] : (*file)->tensors()) {
      const std::vector<std::byte> copy(tensor.data, tensor.data + tensor.bytes);
      bytes += copy.size();
    }
    EXPECT_LE(bytes, changed.size());
  }
  EXPECT_GT(opened, 0);
}

TEST_F(SafetensorsTest, OpensOnlyRegularFiles) {
  EXPECT_EQ(SafetensorsFile::Open(folder_.File("none")).status().code(),
            absl::StatusCode::kNotFound);
  EXPECT_EQ(SafetensorsFile::Open(folder_.path()).status().code(),
            absl::StatusCode::kInvalidArgument);
  const std::string pipe = folder_.File("pipe");
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_THAT(std::string(SafetensorsFile::Open(pipe).status().message()),
              HasSubstr("not a regular file"));
}

TEST_F(SafetensorsTest, HoldsThousandsOfTensors) {
  std::vector<TestTensor> tensors;
  tensors.reserve(5000);
  for (int i = 0; i < 5000; ++i) {
    tensors.push_back({"model.layers." + std::to_string(i) + ".weight", "BF16", {16, i % 7 + 1}});
  }
  const std::string path = folder_.File("many.safetensors");
  WriteZeroSafetensors(path, tensors);
  const auto file = SafetensorsFile::Open(path);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ((*file)->tensors().size(), 5000u);
}

size_t ResidentFileKilobytes() {
  std::ifstream status("/proc/self/status");
  size_t kilobytes = 0;
  for (std::string line; std::getline(status, line);) {
    // The second where the folder lies in memory (tmpfs).
    for (const std::string_view key : {"RssFile:", "RssShmem:"}) {
      if (line.starts_with(key)) kilobytes += std::stoul(line.substr(key.size()));
    }
  }
  return kilobytes;
}

TEST_F(SafetensorsTest, ReleaseDropsPagesThatCanBeReadAgain) {
  const std::string path = folder_.File("large.safetensors");
  WriteZeroSafetensors(path, {{"t", "F16", {4096, 4096}}});  // 32 MiB
  const auto file = SafetensorsFile::Open(path);
  ASSERT_TRUE(file.ok()) << file.status();
  const SafetensorsTensor& tensor = (*file)->tensors().at("t");
  const auto sum = [&] {
    unsigned total = 0;
    for (size_t i = 0; i < tensor.bytes; ++i) total += std::to_integer<unsigned>(tensor.data[i]);
    return total;
  };
  const size_t before = ResidentFileKilobytes();
  EXPECT_EQ(sum(), 0u);
  const size_t touched = ResidentFileKilobytes();
  EXPECT_GT(touched, before + 24 * 1024);
  (*file)->Release(tensor);
  EXPECT_LT(ResidentFileKilobytes(), touched - 24 * 1024);
  EXPECT_EQ(sum(), 0u);
}

}  // namespace
}  // namespace deepencoder
