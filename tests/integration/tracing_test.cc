// The real server, the real client, and a collector that speaks OpenTelemetry's protocol.
#include <gmock/gmock.h>

#include <algorithm>
#include <csignal>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "tests/integration/server_fixture.h"
#include "tests/server/trace/collector.h"

namespace deepencoder {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::UnorderedElementsAre;

constexpr char kTraceparent[] = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
constexpr size_t kSteps = 7;  // admission, decode, views, assemble, queue, compute, reply

client::EncodeOptions Tiny() {
  client::EncodeOptions options;
  options.mode = client::Mode::kTiny;
  options.timeout = absl::Minutes(5);
  return options;
}

std::vector<std::string> Flags(const std::string& endpoint) {
  return {"--modes=tiny", "--otlp-endpoint=" + endpoint, "--trace-ratio=0", "--log-level=debug"};
}

const Collector::OtlpSpan& Named(const std::vector<Collector::OtlpSpan>& spans,
                                 const std::string& name) {
  const auto found = std::find_if(spans.begin(), spans.end(),
                                  [&](const auto& span) { return span.name() == name; });
  EXPECT_NE(found, spans.end()) << name;
  return *found;
}

// The steps beneath a span, by their beginning.
std::vector<std::string> StepsOf(const std::vector<Collector::OtlpSpan>& spans,
                                 const Collector::OtlpSpan& parent) {
  std::vector<Collector::OtlpSpan> steps;
  for (const auto& span : spans) {
    if (span.parent_span_id() != parent.span_id() || span.name() == "image") continue;
    EXPECT_EQ(span.trace_id(), parent.trace_id());
    EXPECT_LE(span.start_time_unix_nano(), span.end_time_unix_nano()) << span.name();
    EXPECT_GE(span.start_time_unix_nano(), parent.start_time_unix_nano()) << span.name();
    EXPECT_LE(span.end_time_unix_nano(), parent.end_time_unix_nano()) << span.name();
    steps.push_back(span);
  }
  std::stable_sort(steps.begin(), steps.end(), [](const auto& a, const auto& b) {
    return std::pair(a.start_time_unix_nano(), a.end_time_unix_nano()) <
           std::pair(b.start_time_unix_nano(), b.end_time_unix_nano());
  });
  std::vector<std::string> names;
  for (const auto& step : steps) names.push_back(step.name());
  return names;
}

TEST(TracingTest, ACallIsATraceWithEveryStep) {
  Collector collector;
  RunningServer server("tracing", Flags(collector.address()));
  ASSERT_TRUE(server.ready()) << server.process().Stderr();
  client::EncodeOptions options = Tiny();
  options.request_id = "page-7";
  ASSERT_TRUE(server.NewClient()->Encode(ReadImage("palette.png"), options).ok());  // not traced
  options.traceparent = kTraceparent;
  ASSERT_TRUE(server.NewClient()->Encode(ReadImage("palette.png"), options).ok());

  const auto spans = collector.AwaitSpans(kSteps + 1);
  ASSERT_EQ(spans.size(), kSteps + 1);
  const auto& call = Named(spans, "deepencoder.v1.VisionEncoder/EncodeImage");
  EXPECT_EQ(absl::BytesToHexString(call.trace_id()), "0af7651916cd43dd8448eb211c80319c");
  EXPECT_EQ(absl::BytesToHexString(call.parent_span_id()), "b7ad6b7169203331");
  EXPECT_EQ(AttributeOf(call.attributes(), "deepencoder.request_id"), "page-7");
  EXPECT_THAT(StepsOf(spans, call),
              ElementsAre("admission", "decode", "views", "assemble", "queue", "compute", "reply"));
  const auto resource = collector.taken().front().resource_spans(0).resource();
  EXPECT_EQ(AttributeOf(resource.attributes(), "service.name"), "deepencoder");
  EXPECT_FALSE(AttributeOf(resource.attributes(), "service.version").empty());
  EXPECT_FALSE(AttributeOf(resource.attributes(), "vcs.ref.head.revision").empty());
  EXPECT_THAT(server.process().Stderr(), HasSubstr("trace_id=0af7651916cd43dd8448eb211c80319c"));
  EXPECT_TRUE(Eventually([&] {
    return server.Metrics()["deepencoder_trace_spans_total{result=\"sent\"}"] == kSteps + 1;
  }));
}

TEST(TracingTest, AStreamHasAnImageWithItsStepsForEach) {
  Collector collector;
  RunningServer server("tracing_stream", Flags("http://" + collector.address()));
  ASSERT_TRUE(server.ready()) << server.process().Stderr();
  client::EncodeOptions options = Tiny();
  options.traceparent = kTraceparent;
  int left = 2;
  const absl::Status status = server.NewClient()->EncodeMany(
      [&]() -> std::optional<client::Image> {
        if (left-- == 0) return std::nullopt;
        return ReadImage("palette.png");
      },
      options, 2,
      [](const client::ManyResult& result) {
        EXPECT_TRUE(result.embeddings.ok()) << result.embeddings.status();
      });
  ASSERT_TRUE(status.ok()) << status;
  const auto spans = collector.AwaitSpans(1 + 2 * (1 + kSteps));
  const auto& call = Named(spans, "deepencoder.v1.VisionEncoder/EncodeImages");
  int images = 0;
  for (const auto& span : spans) {
    if (span.name() != "image") continue;
    ++images;
    EXPECT_EQ(span.parent_span_id(), call.span_id());
    EXPECT_THAT(StepsOf(spans, span),
                UnorderedElementsAre("admission", "decode", "views", "assemble", "queue", "compute",
                                     "reply"));
  }
  EXPECT_EQ(images, 2);
}

TEST(TracingTest, ACollectorThatIsDownHindersNeitherCallsNorTheEnd) {
  std::optional<Collector> gone(std::in_place);
  const std::string address = gone->address();
  gone.reset();
  RunningServer server("tracing_down", Flags(address));
  ASSERT_TRUE(server.ready()) << server.process().Stderr();
  client::EncodeOptions options = Tiny();
  options.traceparent = kTraceparent;
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(server.NewClient()->Encode(ReadImage("palette.png"), options).ok());
  }
  server.process().Signal(SIGTERM);
  EXPECT_EQ(server.process().Wait(), 0) << server.process().Stderr();
}

TEST(TracingTest, AWrongEndpointIsSaidAtTheStart) {
  RunningServer server("tracing_wrong", Flags("http://host/v1/traces"));
  EXPECT_FALSE(server.ready());
  EXPECT_THAT(server.process().Stderr(), HasSubstr("--otlp-endpoint"));
}

}  // namespace
}  // namespace deepencoder
