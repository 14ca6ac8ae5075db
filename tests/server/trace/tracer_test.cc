#include "server/trace/tracer.h"

#include <gtest/gtest.h>

namespace deepencoder {
namespace {

class Kept final : public SpanSink {
 public:
  void Add(std::vector<Span> added) override {
    for (Span& span : added) spans.push_back(std::move(span));
  }
  std::vector<Span> spans;
};

constexpr char kKeep[] = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
constexpr char kLeave[] = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00";

TEST(TracerTest, TheParentDecidesWhateverTheRatio) {
  Kept sink;
  for (const double ratio : {0.0, 1.0}) {
    const Tracer tracer(ratio, &sink);
    const Span kept = tracer.Begin(kKeep, "vendor=1");
    EXPECT_TRUE(kept.context.sampled);
    EXPECT_EQ(Hex(kept.context.trace_id), "0af7651916cd43dd8448eb211c80319c");
    EXPECT_EQ(Hex(kept.parent), "b7ad6b7169203331");
    EXPECT_NE(kept.context.span_id, kept.parent);
    EXPECT_TRUE(kept.remote_parent);
    EXPECT_EQ(kept.trace_state, "vendor=1");
    EXPECT_EQ(kept.kind, Span::Kind::kServer);
    EXPECT_FALSE(tracer.Begin(kLeave, "").context.sampled);
  }
}

// A collector would refuse the whole message that such a text is in.
TEST(TracerTest, AStateThatIsNoTextIsNotPassedOn) {
  Kept sink;
  const Tracer tracer(0, &sink);
  for (const char* state : {"vendor=\xFF", "vendor=\xC3\xA9", "vendor=1\n", "\x7F"}) {
    const Span span = tracer.Begin(kKeep, state);
    EXPECT_TRUE(span.context.sampled);
    EXPECT_EQ(span.trace_state, "") << state;
  }
  EXPECT_EQ(tracer.Begin(kKeep, "a=1,b@c=x y").trace_state, "a=1,b@c=x y");
}

TEST(TracerTest, WithoutAParentTheRatioDecides) {
  Kept sink;
  const auto share = [&sink](double ratio) {
    const Tracer tracer(ratio, &sink);
    int kept = 0;
    for (int i = 0; i < 10'000; ++i) {
      const Span span = tracer.Begin("not valid", "");
      EXPECT_EQ(span.parent, SpanId{});
      kept += span.context.sampled ? 1 : 0;
    }
    return kept / 10'000.0;
  };
  EXPECT_EQ(share(0), 0);
  EXPECT_EQ(share(1), 1);
  EXPECT_NEAR(share(0.25), 0.25, 0.03);  // 7 standard deviations
}

TEST(TracerTest, AChildIsInTheSameTrace) {
  Kept sink;
  const Tracer tracer(1, &sink);
  const Span parent = tracer.Begin("", "");
  const absl::Time begin = absl::FromUnixSeconds(10), end = absl::FromUnixSeconds(11);
  const Span child = Tracer::Child(parent, "decode", begin, end);
  EXPECT_EQ(child.context.trace_id, parent.context.trace_id);
  EXPECT_EQ(child.parent, parent.context.span_id);
  EXPECT_NE(child.context.span_id, parent.context.span_id);
  EXPECT_FALSE(child.remote_parent);
  EXPECT_EQ(child.name, "decode");
  EXPECT_EQ(child.begin, begin);
  EXPECT_EQ(child.end, end);
  tracer.Record({parent, child});
  EXPECT_EQ(sink.spans.size(), 2U);
}

}  // namespace
}  // namespace deepencoder
