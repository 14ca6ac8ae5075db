#include "server/log.h"

#include <gmock/gmock.h>

#include <cmath>
#include <string>
#include <vector>

namespace deepencoder {
namespace {

using testing::MatchesRegex;

class LogTest : public testing::Test {
 protected:
  Logger Make(LogLevel least, LogFormat format) {
    return {least, format, [this](std::string_view line) { lines_.emplace_back(line); }};
  }
  std::vector<std::string> lines_;
};

TEST_F(LogTest, Text) {
  Make(LogLevel::kDebug, LogFormat::kText)
      .Info("served",
            {{"id", "a-1"}, {"rows", 273}, {"seconds", 0.25}, {"ok", true}, {"why", "a b"}});
  ASSERT_EQ(lines_.size(), 1);
  EXPECT_THAT(lines_[0], MatchesRegex("20..-..-..T..:..:..\\....Z info    served id=a-1 rows=273 "
                                      "seconds=0.25 ok=true why=\"a b\"\n"));
}

TEST_F(LogTest, Json) {
  Make(LogLevel::kDebug, LogFormat::kJson)
      .Error("a \"quoted\" line",
             {{"id", "x\ny\\"}, {"seconds", std::nan("")}, {"n", int64_t{-1}}});
  ASSERT_EQ(lines_.size(), 1);
  const std::string rest = lines_[0].substr(lines_[0].find(",\"level\""));
  EXPECT_EQ(rest,
            ",\"level\":\"error\",\"message\":\"a \\\"quoted\\\" line\",\"id\":\"x\\u000ay\\\\\","
            "\"seconds\":null,\"n\":-1}\n");
}

TEST_F(LogTest, WhatIsNoUtf8IsReplaced) {
  const auto quoted = [this](std::string_view text) {
    lines_.clear();
    Make(LogLevel::kDebug, LogFormat::kJson).Info("x", {{"v", text}});
    const size_t at = lines_.at(0).find("\"v\":\"") + 5;
    return lines_[0].substr(at, lines_[0].rfind('"') - at);
  };
  for (const char* text : {"\u00e9", "\u20ac", "\u0800", "\ud7ff", "\U0001f600", "\U0010ffff"}) {
    EXPECT_EQ(quoted(text), text);
  }
  EXPECT_EQ(quoted("a\xFFz"), "a\\ufffdz");
  EXPECT_EQ(quoted("\xC3"), "\\ufffd");
  EXPECT_EQ(quoted("\xE2\x82"), "\\ufffd\\ufffd");
  EXPECT_EQ(quoted("\xC0\x80"), "\\ufffd\\ufffd");  // overlong
  EXPECT_EQ(quoted("\xE0\x80\x80"), "\\ufffd\\ufffd\\ufffd");
  EXPECT_EQ(quoted("\xF0\x80\x80\x80").size(), 4 * 6);
  EXPECT_EQ(quoted("\xED\xA0\x80").size(), 3 * 6);      // a surrogate
  EXPECT_EQ(quoted("\xF4\x90\x80\x80").size(), 4 * 6);  // past Unicode
  EXPECT_EQ(quoted("\xC3\""), "\\ufffd\\\"");           // a quote ends no character
}

TEST_F(LogTest, LevelsBelowTheLeastAreLeftOut) {
  const Logger logger = Make(LogLevel::kWarning, LogFormat::kText);
  logger.Debug("no");
  logger.Info("no");
  logger.Warning("yes");
  logger.Error("yes");
  EXPECT_EQ(lines_.size(), 2);
  EXPECT_FALSE(logger.Enabled(LogLevel::kInfo));
}

// Whatever a client sends as an id stays within its line.
TEST_F(LogTest, ValuesCannotBeginALine) {
  const std::string id = "x\n2026-01-01T00:00:00.000Z error   forged";
  for (const LogFormat format : {LogFormat::kText, LogFormat::kJson}) {
    lines_.clear();
    Make(LogLevel::kDebug, format).Info("image", {{"id", id}});
    ASSERT_EQ(lines_.size(), 1);
    EXPECT_EQ(lines_[0].find('\n'), lines_[0].size() - 1);
  }
}

}  // namespace
}  // namespace deepencoder
