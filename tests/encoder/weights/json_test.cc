#include "encoder/weights/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "tests/encoder/weights/test_files.h"

namespace deepencoder {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr size_t kLimit = 1 << 20;

std::string Error(const absl::Status& status) { return std::string(status.message()); }

TEST(JsonTest, ReadsObjects) {
  const auto json = ParseJson(R"( {"a": {"b": [1, 2e3, -4]}, "s": "\u00e9\"{"}  )", kLimit);
  ASSERT_TRUE(json.ok()) << json.status();
  const auto list = FindJson(*json, {"a", "b"});
  ASSERT_TRUE(list.ok()) << list.status();
  EXPECT_THAT(*JsonIntegers(**list, -10, 2000, 3), ElementsAre(1, 2000, -4));
  EXPECT_EQ(*JsonString(*FindJson(*json, "s")), "\xC3\xA9\"{");
  EXPECT_EQ(FindJson(*json, "b"), nullptr);
}

TEST(JsonTest, RefusesWhatIsNotOneJsonObject) {
  for (const char* text : {"",
                           " ",
                           "{",
                           "}",
                           "null",
                           "1",
                           "\"a\"",
                           "[1]",
                           "{\"a\" 1}",
                           "{\"a\":}",
                           "{\"a\":tru}",
                           "{\"a\":1}x",
                           "{\"a\":1}{\"b\":2}",
                           "{\"a\":01}",
                           "{\"a\":0x1}",
                           "{\"a\":1e999}",
                           "{\"a\":NaN}",
                           "{\"a\":Infinity}",
                           "{'a':1}",
                           "{\"a\":'b'}",
                           "{\"a\":\"\xFF\"}",
                           "{\"a\":\"\\ud800\"}",
                           "{\"a\":\"b}",
                           "{\"a\":[1,2}",
                           "{\"a\":1,\"a\":2}",
                           "{\"a\":1,\"\\u0061\":2}",
                           "{\"x\":[{\"a\":1,\"a\":1}]}"}) {
    const auto json = ParseJson(text, kLimit);
    EXPECT_EQ(json.status().code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_FALSE(Error(json.status()).empty());
  }
  EXPECT_EQ(ParseJson(std::string_view("{\"a\":1}\0", 8), kLimit).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(JsonTest, LimitsSizeAndNesting) {
  const std::string text = R"({"key": "value"})";
  EXPECT_TRUE(ParseJson(text, text.size()).ok());
  EXPECT_THAT(Error(ParseJson(text, text.size() - 1).status()), HasSubstr("over the limit of 15"));

  const auto nested = [](int levels) {
    return "{\"a\":" + std::string(levels - 1, '[') + std::string(levels - 1, ']') + "}";
  };
  EXPECT_TRUE(ParseJson(nested(kMaxJsonDepth), kLimit).ok());
  EXPECT_THAT(Error(ParseJson(nested(kMaxJsonDepth + 1), kLimit).status()),
              HasSubstr("deeper than 32"));
  EXPECT_THAT(Error(ParseJson(nested(400'000), kLimit).status()), HasSubstr("deeper than 32"));
  // Brackets in strings are no nesting.
  EXPECT_TRUE(ParseJson("{\"a\":\"" + std::string(100, '[') + "\\\"{\"}", kLimit).ok());
}

TEST(JsonTest, PathsNameWhatIsMissing) {
  const auto json = ParseJson(R"({"a": {"b": 1}})", kLimit);
  ASSERT_TRUE(json.ok());
  EXPECT_EQ(Error(FindJson(*json, {"a", "c"}).status()), "a.c is missing");
  EXPECT_EQ(Error(FindJson(*json, {"x", "c"}).status()), "x is missing");
  EXPECT_EQ(Error(FindJson(*json, {"a", "b", "c"}).status()),
            "a.b must be an object, found a number");
}

TEST(JsonTest, IntegersAreWholeAndInRange) {
  const auto json = ParseJson(
      R"({"half": 0.5, "big": 9007199254740994, "minus": -1, "text": "1", "flag": true,
          "none": null, "exact": 9007199254740992, "huge": 1e300, "list": [1, 2],
          "mixed": [1, "2"], "zero": -0})",
      kLimit);
  ASSERT_TRUE(json.ok()) << json.status();
  const auto read = [&](const char* key) {
    return JsonInteger(*FindJson(*json, key), 0, INT64_MAX);
  };
  for (const char* key : {"half", "big", "minus", "text", "flag", "none", "huge", "list"}) {
    EXPECT_EQ(read(key).status().code(), absl::StatusCode::kInvalidArgument) << key;
  }
  EXPECT_EQ(*read("exact"), int64_t{1} << 53);
  EXPECT_EQ(*read("zero"), 0);
  EXPECT_EQ(Error(JsonInteger(*FindJson(*json, "minus"), 0, 7).status()),
            "expected a whole number from 0 to 7, found -1");
  EXPECT_THAT(Error(JsonIntegers(*FindJson(*json, "list"), 0, 9, 1).status()),
              HasSubstr("at most 1"));
  EXPECT_FALSE(JsonIntegers(*FindJson(*json, "mixed"), 0, 9, 9).ok());
  EXPECT_FALSE(JsonIntegers(*FindJson(*json, "exact"), 0, 9, 9).ok());
  EXPECT_EQ(Error(JsonString(*FindJson(*json, "none")).status()), "expected a string, found null");
}

TEST(JsonTest, FileErrorsStartWithThePath) {
  const TemporaryFolder folder;
  const std::string path = folder.File("a.json");
  EXPECT_EQ(ReadJsonFile(path, kLimit).status().code(), absl::StatusCode::kNotFound);
  WriteFile(path, "{\"a\": 1}");
  EXPECT_TRUE(ReadJsonFile(path, kLimit).ok());
  WriteFile(path, "{\"a\": 1");
  EXPECT_THAT(Error(ReadJsonFile(path, kLimit).status()), HasSubstr(path + ": not a JSON object"));
  EXPECT_THAT(Error(ReadJsonFile(folder.path(), kLimit).status()), HasSubstr("not a regular file"));
  WriteFile(path, std::string(200'000, ' '));
  EXPECT_THAT(Error(ReadJsonFile(path, 100'000).status()), HasSubstr("over the limit of 100000"));
}

}  // namespace
}  // namespace deepencoder
