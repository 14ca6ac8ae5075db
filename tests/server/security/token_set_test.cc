#include "server/security/token_set.h"

#include <gmock/gmock.h>

#include "tests/server/security/test_certificates.h"
#include "tests/work_folder.h"

namespace deepencoder {
namespace {

using testing::HasSubstr;
using testing::Not;

std::string ErrorOf(const std::string& text) {
  const auto set = TokenSet::Parse(text);
  EXPECT_FALSE(set.ok()) << text;
  return std::string(set.status().message());
}

TEST(TokenSetTest, FindsTheNameOfEachToken) {
  const auto set = TokenSet::Parse(
      "# of the web team\n"
      "web:0123456789abcdef\r\n"
      "\n"
      "web:rotated-0123456789\n"
      // printf %s a-secret-of-its-own | sha256sum
      "batch.jobs:sha256:799c6626d4510be53e177d3eda69d6a04e41cdfd3950e871df4fdaa23ceecc28");
  ASSERT_TRUE(set.ok()) << set.status();
  EXPECT_EQ(set->size(), 3);
  EXPECT_EQ(set->NameOf("0123456789abcdef"), "web");
  EXPECT_EQ(set->NameOf("rotated-0123456789"), "web");
  EXPECT_EQ(set->NameOf("a-secret-of-its-own"), "batch.jobs");
  for (const char* wrong :
       {"", "0123456789abcde", "0123456789abcdef0", "0123456789abcdeF",
        "799c6626d4510be53e177d3eda69d6a04e41cdfd3950e871df4fdaa23ceecc28",
        "sha256:799c6626d4510be53e177d3eda69d6a04e41cdfd3950e871df4fdaa23ceecc28"}) {
    EXPECT_EQ(set->NameOf(wrong), std::nullopt) << wrong;
  }
}

TEST(TokenSetTest, ErrorsNameTheLineAndNotTheSecret) {
  EXPECT_THAT(ErrorOf("a:0123456789abcdef\nno-secret-here"), HasSubstr("line 2: expected NAME:"));
  EXPECT_THAT(ErrorOf("a b:0123456789abcdef"), HasSubstr("line 1: expected NAME:"));
  EXPECT_THAT(ErrorOf(":0123456789abcdef"), HasSubstr("expected NAME:"));
  EXPECT_THAT(ErrorOf("a:tooshort"), HasSubstr("16 to 512 printable"));
  EXPECT_THAT(ErrorOf("a:with a blank inside"), HasSubstr("16 to 512 printable"));
  EXPECT_THAT(ErrorOf("a:" + std::string(513, 'x')), HasSubstr("16 to 512 printable"));
  EXPECT_THAT(ErrorOf("a:sha256:0123"), HasSubstr("64 digits"));
  EXPECT_THAT(ErrorOf("a:sha256:" + std::string(64, 'G')), HasSubstr("64 digits"));
  EXPECT_THAT(ErrorOf("a:0123456789abcdef\nb:0123456789abcdef"), HasSubstr("line 2: a token that"));
  EXPECT_THAT(ErrorOf("# nothing\n\n"), HasSubstr("no token"));
  EXPECT_THAT(ErrorOf("a:0123456789abcdef\nb:hunter2"), Not(HasSubstr("hunter2")));
  std::string many;
  for (int i = 0; i < 1025; ++i) many += "a:0123456789abcdef" + std::to_string(i) + "\n";
  EXPECT_THAT(ErrorOf(many), HasSubstr("more than 1024"));
}

TEST(TokenSetTest, AFileThatOthersCanReadIsRefused) {
  const std::string path = WorkFolder() + "/token_set_test.tokens";
  const std::string text = "a:0123456789abcdef\n";
  for (const unsigned mode : {0600U, 0400U, 0640U, 0440U}) {
    WriteFile(path, text, mode);
    EXPECT_TRUE(TokenSet::Load(path).ok()) << mode;
  }
  for (const unsigned mode : {0644U, 0604U, 0660U, 0602U}) {
    WriteFile(path, text, mode);
    const auto set = TokenSet::Load(path);
    EXPECT_EQ(set.status().code(), absl::StatusCode::kPermissionDenied) << mode;
    EXPECT_THAT(std::string(set.status().message()), HasSubstr("chmod 600"));
  }
  WriteFile(path, "a:short", 0600);
  EXPECT_THAT(std::string(TokenSet::Load(path).status().message()),
              HasSubstr("token_set_test.tokens: line 1"));
  EXPECT_EQ(TokenSet::Load(path + ".none").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(TokenSet::Load(testing::TempDir()).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace deepencoder
