#include "server/shared_memory/object_name.h"

#include <gmock/gmock.h>

#include <string>

namespace deepencoder {
namespace {

using testing::HasSubstr;

TEST(ObjectNameTest, TakesNamesWithOrWithoutASlash) {
  for (const char* key : {"app", "/app", "/app.1_x-Y", "/app..", "app.."}) {
    const auto name = ParseObjectName(key, "app");
    ASSERT_TRUE(name.ok()) << name.status();
    EXPECT_EQ(*name, key[0] == '/' ? key + 1 : key);
  }
  EXPECT_TRUE(ParseObjectName(std::string(kMaxObjectName, 'a'), "").ok());
}

TEST(ObjectNameTest, RefusesWhatIsNoPlainName) {
  const std::string names[] = {"",
                               "/",
                               ".",
                               "..",
                               "/.",
                               "/..",
                               "//app",
                               "app/",
                               "app/x",
                               "../app",
                               "/../etc/passwd",
                               "app/../../etc/passwd",
                               "app x",
                               "app\n",
                               "app%2fx",
                               "app\\x",
                               "app*",
                               "app~",
                               "\xc3\xa4pp",
                               "app\xff",
                               std::string("app\0x", 5),
                               std::string("/app\0", 5),
                               "/proc/self/mem",
                               std::string(kMaxObjectName + 1, 'a'),
                               std::string(1 << 20, 'a')};
  for (const std::string& key : names) {
    const auto name = ParseObjectName(key, "");
    EXPECT_EQ(name.status().code(), absl::StatusCode::kInvalidArgument) << key.substr(0, 40);
    // The text is fit for a header, however long and strange the name was.
    EXPECT_LT(name.status().message().size(), 400);
    for (const char c : name.status().message()) EXPECT_TRUE(c >= ' ' && c <= '~');
  }
}

TEST(ObjectNameTest, RefusesNamesOfOtherPrograms) {
  for (const char* key : {"/psm_1234", "pulse-shm-1", "/dee", "/Deepencoder", "/x-deepencoder"}) {
    const auto name = ParseObjectName(key, "deepencoder");
    EXPECT_EQ(name.status().code(), absl::StatusCode::kInvalidArgument) << key;
    EXPECT_THAT(std::string(name.status().message()), HasSubstr("--shared-memory-prefix"));
  }
}

// Whatever the bytes: what is taken is a name in one folder.
TEST(ObjectNameTest, NoBytesMakeAPath) {
  uint32_t state = 1;
  const auto next = [&state] { return state = state * 1664525 + 1013904223; };
  const std::string alphabet = std::string("/.a-_%\\\0 \n\x80", 11);
  int taken = 0;
  for (int i = 0; i < 200'000; ++i) {
    std::string key;
    for (uint32_t length = next() >> 29; key.size() < length;) {
      key += alphabet[(next() >> 16) % alphabet.size()];
    }
    const auto name = ParseObjectName(key, "");
    if (!name.ok()) continue;
    ++taken;
    EXPECT_EQ(name->find('/'), std::string::npos);
    EXPECT_EQ(name->find('\0'), std::string::npos);
    EXPECT_TRUE(!name->empty() && *name != "." && *name != "..");
  }
  EXPECT_GT(taken, 1000);
}

}  // namespace
}  // namespace deepencoder
