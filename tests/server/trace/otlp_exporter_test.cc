#include "server/trace/otlp_exporter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <optional>
#include <string>

#include "server/trace/tracer.h"
#include "tests/server/trace/collector.h"

namespace deepencoder {
namespace {

using testing::HasSubstr;
using testing::SizeIs;

class OtlpExporterTest : public testing::Test {
 protected:
  // Sends at once, comes again soon, waits for nothing long.
  static OtlpOptions Options(const std::string& endpoint) {
    return {.endpoint = endpoint,
            .resource = {{"service.name", std::string("tested")}},
            .version = "1.2",
            .delay = absl::ZeroDuration(),
            .first_backoff = absl::Milliseconds(1),
            .last_sends = absl::Seconds(30)};
  }
  std::unique_ptr<OtlpExporter> Start(const OtlpOptions& options) {
    auto exporter = OtlpExporter::Start(options, &logger_);
    EXPECT_TRUE(exporter.ok()) << exporter.status();
    return *std::move(exporter);
  }
  static std::vector<Span> Spans(int count) {
    std::vector<Span> spans(count);
    for (Span& span : spans) {
      span.context = {RandomTraceId(), RandomSpanId(), true};
      span.name = "work";
      span.begin = absl::FromUnixNanos(1'000'000'001);
      span.end = absl::FromUnixNanos(2'000'000'002);
    }
    return spans;
  }
  // Waits until every span was sent or lost.
  static OtlpCounts Await(const OtlpExporter& exporter, int64_t spans) {
    OtlpCounts counts;
    do {
      std::this_thread::yield();
      counts = exporter.counts();
    } while (counts.sent + counts.failed + counts.queue_full < spans);
    return counts;
  }
  std::string log() {
    const MutexLock lock(mutex_);
    return log_;
  }

  Mutex mutex_;
  std::string log_ ABSL_GUARDED_BY(mutex_);
  Logger logger_{LogLevel::kInfo, LogFormat::kText, [this](std::string_view line) {
                   const MutexLock lock(mutex_);
                   log_ += line;
                 }};
};

TEST_F(OtlpExporterTest, SendsWhatTheProtocolAsks) {
  Collector collector;
  const auto exporter = Start(Options(collector.address()));
  std::vector<Span> spans = Spans(1);
  Span& span = spans.front();
  span.parent = RandomSpanId();
  span.remote_parent = true;
  span.trace_state = "vendor=1";
  span.kind = Span::Kind::kServer;
  span.attributes = {
      {"text", std::string("a")}, {"number", int64_t{7}}, {"real", 0.5}, {"yes", true}};
  span.failed = true;
  span.message = "why";
  const Span sent = span;
  exporter->Add(std::move(spans));

  const auto got = collector.AwaitSpans(1).front();
  EXPECT_EQ(got.trace_id(), std::string(Bytes(sent.context.trace_id)));
  EXPECT_EQ(got.span_id(), std::string(Bytes(sent.context.span_id)));
  EXPECT_EQ(got.parent_span_id(), std::string(Bytes(sent.parent)));
  EXPECT_EQ(got.trace_state(), "vendor=1");
  EXPECT_EQ(got.flags(), 0x301U);  // sampled; known to be remote, and it is
  EXPECT_EQ(got.name(), "work");
  EXPECT_EQ(got.kind(), Collector::OtlpSpan::SPAN_KIND_SERVER);
  EXPECT_EQ(got.start_time_unix_nano(), 1'000'000'001U);
  EXPECT_EQ(got.end_time_unix_nano(), 2'000'000'002U);
  EXPECT_EQ(AttributeOf(got.attributes(), "text"), "a");
  EXPECT_EQ(AttributeOf(got.attributes(), "number"), "7");
  EXPECT_EQ(AttributeOf(got.attributes(), "real"), "0.5");
  EXPECT_EQ(AttributeOf(got.attributes(), "yes"), "true");
  EXPECT_EQ(got.status().code(), opentelemetry::proto::trace::v1::Status::STATUS_CODE_ERROR);
  EXPECT_EQ(got.status().message(), "why");
  const auto sender = collector.taken().front().resource_spans(0);
  EXPECT_EQ(AttributeOf(sender.resource().attributes(), "service.name"), "tested");
  EXPECT_EQ(sender.scope_spans(0).scope().name(), "deepencoder");
  EXPECT_EQ(sender.scope_spans(0).scope().version(), "1.2");
  EXPECT_EQ(Await(*exporter, 1).sent, 1);
}

TEST_F(OtlpExporterTest, ACollectorThatIsDownCostsTheSpansAndOneLine) {
  std::optional<Collector> gone(std::in_place);
  const std::string address = gone->address();
  gone.reset();
  const auto exporter = Start(Options(address));
  exporter->Add(Spans(3));
  EXPECT_EQ(Await(*exporter, 3).failed, 3);
  exporter->Add(Spans(2));
  EXPECT_EQ(Await(*exporter, 5).failed, 5);
  EXPECT_EQ(log().find("cannot be delivered"), log().rfind("cannot be delivered"));
  EXPECT_THAT(log(), HasSubstr("warning"));
  EXPECT_THAT(log(), HasSubstr(address));
}

TEST_F(OtlpExporterTest, WhatACollectorMayTakeLaterIsSentAgain) {
  std::atomic<int> refusals{2};
  Collector collector([&](grpc::ServerContext*, Collector::Response*) {
    return refusals-- > 0 ? grpc::Status(grpc::StatusCode::UNAVAILABLE, "not now")
                          : grpc::Status::OK;
  });
  const auto exporter = Start(Options("http://" + collector.address() + "/"));
  exporter->Add(Spans(2));
  EXPECT_THAT(collector.AwaitSpans(2), SizeIs(2));
  const OtlpCounts counts = Await(*exporter, 2);
  EXPECT_EQ(counts.sent, 2);
  EXPECT_EQ(counts.failed, 0);
  EXPECT_THAT(log(), HasSubstr("not now"));
  EXPECT_THAT(log(), HasSubstr("delivered again"));
}

TEST_F(OtlpExporterTest, WhatACollectorRefusesIsNotSentAgain) {
  std::atomic<int> calls{0};
  Collector collector([&](grpc::ServerContext*, Collector::Response*) {
    ++calls;
    return grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "not these");
  });
  const auto exporter = Start(Options(collector.address()));
  exporter->Add(Spans(4));
  EXPECT_EQ(Await(*exporter, 4).failed, 4);
  EXPECT_EQ(calls, 1);
}

TEST_F(OtlpExporterTest, WhatACollectorTakesInPartIsCounted) {
  Collector collector([](grpc::ServerContext*, Collector::Response* response) {
    response->mutable_partial_success()->set_rejected_spans(1);
    return grpc::Status::OK;
  });
  const auto exporter = Start(Options(collector.address()));
  exporter->Add(Spans(3));
  const OtlpCounts counts = Await(*exporter, 3);
  EXPECT_EQ(counts.sent, 2);
  EXPECT_EQ(counts.failed, 1);
}

TEST_F(OtlpExporterTest, ASlowCollectorDelaysNobodyAndTheQueueIsBounded) {
  std::atomic<bool> go{false};
  Collector collector([&](grpc::ServerContext* context, Collector::Response*) {
    while (!go && !context->IsCancelled()) std::this_thread::yield();
    return grpc::Status::OK;
  });
  OtlpOptions options = Options(collector.address());
  options.queue = 4;
  const auto exporter = Start(options);
  exporter->Add(Spans(1));
  collector.AwaitCalls(1);                               // which does not end
  for (int i = 0; i < 10; ++i) exporter->Add(Spans(1));  // returns nonetheless
  EXPECT_EQ(exporter->counts().queue_full, 6);
  EXPECT_EQ(exporter->counts().sent, 0);
  go = true;
  EXPECT_THAT(collector.AwaitSpans(5), SizeIs(5));
}

TEST_F(OtlpExporterTest, TheEndSendsWhatIsLeft) {
  Collector collector;
  OtlpOptions options = Options(collector.address());
  options.delay = absl::Hours(1);  // nothing goes by itself
  auto exporter = Start(options);
  exporter->Add(Spans(3));
  exporter.reset();
  EXPECT_THAT(collector.AwaitSpans(3), SizeIs(3));
}

TEST_F(OtlpExporterTest, TheEndDoesNotWaitForACollectorThatHangs) {
  Collector collector([](grpc::ServerContext* context, Collector::Response*) {
    while (!context->IsCancelled()) std::this_thread::yield();
    return grpc::Status::OK;
  });
  OtlpOptions options = Options(collector.address());
  options.timeout = absl::Hours(1);
  options.last_sends = absl::Milliseconds(1);
  auto exporter = Start(options);
  exporter->Add(Spans(1));
  collector.AwaitCalls(1);
  exporter->Add(Spans(1));
  exporter.reset();  // would take an hour
}

TEST_F(OtlpExporterTest, AnEndpointThatIsNoneIsRefused) {
  for (const char* wrong : {"", "http://", "ftp://a:1", "http://a:4317/v1/traces"}) {
    EXPECT_EQ(OtlpExporter::Start(Options(wrong), &logger_).status().code(),
              absl::StatusCode::kInvalidArgument)
        << wrong;
  }
}

}  // namespace
}  // namespace deepencoder
