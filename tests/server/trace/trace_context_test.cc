#include "server/trace/trace_context.h"

#include <gtest/gtest.h>

#include <set>

namespace deepencoder {
namespace {

// The examples of W3C Trace Context.
constexpr char kSampled[] = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
constexpr char kNotSampled[] = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00";

TEST(TraceContextTest, ReadsAndWritesTheSameText) {
  const auto context = ParseTraceparent(kSampled);
  ASSERT_TRUE(context.has_value());
  EXPECT_EQ(Hex(context->trace_id), "0af7651916cd43dd8448eb211c80319c");
  EXPECT_EQ(Hex(context->span_id), "b7ad6b7169203331");
  EXPECT_TRUE(context->sampled);
  EXPECT_EQ(FormatTraceparent(*context), kSampled);
  EXPECT_EQ(FormatTraceparent(*ParseTraceparent(kNotSampled)), kNotSampled);
}

TEST(TraceContextTest, OtherFlagsAndLaterVersionsAreRead) {
  EXPECT_TRUE(ParseTraceparent("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-ff")->sampled);
  EXPECT_FALSE(
      ParseTraceparent("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-02")->sampled);
  EXPECT_TRUE(ParseTraceparent("cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"));
  EXPECT_TRUE(
      ParseTraceparent("cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-what-comes"));
}

TEST(TraceContextTest, WhatIsNotValidIsNothing) {
  for (const char* wrong : {
           "", "00",
           "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",       // no flags
           "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-x",  // more than version 00 has
           "cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01x",   // no dash behind the flags
           "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",    // no version
           "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",    // capitals
           "00-0af7651916cd43dd8448eb211c80319g-b7ad6b7169203331-01",    // no digit
           "00-00000000000000000000000000000000-b7ad6b7169203331-01",    // no trace
           "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",    // no span
           "00_0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",    // no dash
           "00-0af7651916cd43dd8448eb211c80319c0-b7ad6b7169203331-01",   // too long an id
       }) {
    EXPECT_FALSE(ParseTraceparent(wrong)) << wrong;
  }
}

TEST(TraceContextTest, RandomIdsDiffer) {
  std::set<TraceId> traces;
  std::set<SpanId> spans;
  for (int i = 0; i < 1000; ++i) {
    traces.insert(RandomTraceId());
    spans.insert(RandomSpanId());
  }
  EXPECT_EQ(traces.size(), 1000U);
  EXPECT_EQ(spans.size(), 1000U);
}

TEST(TracestateTest, IsShortenedByWholeMembers) {
  EXPECT_EQ(ShortenTracestate("a=1,b=2", 7), "a=1,b=2");
  EXPECT_EQ(ShortenTracestate("a=1,b=2", 6), "a=1");
  EXPECT_EQ(ShortenTracestate("a=1,b=2,c=3", 7), "a=1,b=2");
  EXPECT_EQ(ShortenTracestate("a=1,b=2", 2), "");
  // Long members make way before short ones behind them, and as few as will do.
  const std::string most = "l=" + std::string(126, 'x'), more = "m=" + std::string(127, 'x');
  EXPECT_EQ(ShortenTracestate(most + "," + more + ",b=2", 200), most + ",b=2");
  EXPECT_EQ(ShortenTracestate(more + "," + more + ",b=2", 200), more + ",b=2");
}

}  // namespace
}  // namespace deepencoder
