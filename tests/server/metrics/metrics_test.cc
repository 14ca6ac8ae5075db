#include "server/metrics/metrics.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <fstream>
#include <future>
#include <map>
#include <set>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "server/metrics/device_metrics.h"
#include "server/metrics/exposition.h"
#include "server/metrics/metric_table.h"
#include "server/metrics/process_metrics.h"
#include "server/metrics/shared_memory_metrics.h"
#include "server/metrics/trace_metrics.h"
#include "server/shared_memory/region_table.h"
#include "tests/integration/http_get.h"
#include "tests/server/metrics/samples.h"
#include "tests/server/shared_memory/client_object.h"

namespace deepencoder {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(MetricTableTest, NamesAreDistinctAndUnitsFollowTheConvention) {
  std::set<std::string> names;
  for (const MetricSpec& spec : MetricTable()) {
    const std::string name = spec.name;
    EXPECT_TRUE(names.insert(name).second) << name;
    EXPECT_EQ(name.ends_with("_total"), spec.type == MetricType::kCounter) << name;
    EXPECT_EQ(spec.buckets != BucketSet::kNone, spec.type == MetricType::kHistogram) << name;
    const std::string unit = spec.unit;
    if (unit == "seconds" || unit == "bytes" || unit == "watts" || unit == "hertz" ||
        unit == "celsius" || unit == "ratio") {
      EXPECT_THAT(name, HasSubstr(unit));
    }
    EXPECT_TRUE(name.starts_with("deepencoder_") || name.starts_with("process_")) << name;
    EXPECT_TRUE(std::string(spec.help).ends_with(".")) << name;
  }
}

TEST(MetricTableTest, SecondsGoFromOneMillisecondToTenByAboutHalfAgain) {
  const std::vector<double> bounds = BoundsOf(BucketSet::kSeconds);
  EXPECT_EQ(bounds.front(), 0.001);
  EXPECT_EQ(bounds.back(), 10.0);
  for (size_t i = 1; i < bounds.size(); ++i) {
    EXPECT_GT(bounds[i] / bounds[i - 1], 1.3);
    EXPECT_LT(bounds[i] / bounds[i - 1], 1.6);
  }
}

TEST(MetricTableTest, MarkdownHasARowForEach) {
  const std::string text = MetricsMarkdown();
  for (const MetricSpec& spec : MetricTable()) {
    EXPECT_THAT(text, HasSubstr("`" + std::string(spec.name) + "`"));
  }
}

// Whatever is exposed is in the table, with its help and labels, and the other way round.
TEST(MetricsTest, ExposesWhatTheTableSays) {
  Metrics metrics;
  metrics.SetBuildInfo("1", "c", "cpu: x", "bf16");
  metrics.SetModelInfo("m", "0123", true);
  metrics.StartCounting();
  metrics.OnBatch(0, 640, 1, 1, GraphUse::kNone, 0.1);
  class Fixed final : public Backend {
   public:
    const BackendInfo& info() const override { return info_; }
    absl::StatusOr<std::shared_ptr<const ViewSet>> MakeViews(const RgbImage&,
                                                             const ViewPlan&) override {
      return absl::UnimplementedError("");
    }
    absl::StatusOr<std::unique_ptr<EncoderSlot>> CreateSlot() override {
      return absl::UnimplementedError("");
    }
    std::vector<MemoryUse> Memory() const override { return {{"weights", 100, 200}}; }
    size_t FreeMemory() const override { return 0; }

   private:
    BackendInfo info_ = [] {
      BackendInfo info;
      info.device = 3;
      return info;
    }();
  };
  const auto backend = std::make_shared<Fixed>();
  BackendMemory memory;
  memory.SetBackends({backend});
  EXPECT_EQ(Samples(memory)["deepencoder_device_memory_bytes{device=\"3\",kind=\"weights\"}"],
            "100");
  EXPECT_EQ(Samples(memory)["deepencoder_device_memory_peak_bytes{device=\"3\",kind=\"weights\"}"],
            "200");

  std::map<std::string, prometheus::MetricFamily> exposed;
  Logger quiet(LogLevel::kError, LogFormat::kText);
  const auto exporter = OtlpExporter::Start({.endpoint = "127.0.0.1:1"}, &quiet);
  ASSERT_TRUE(exporter.ok()) << exporter.status();
  EXPECT_TRUE(TraceMetrics(nullptr).Collect().empty());
  for (auto& families :
       {metrics.collectable()->Collect(), ProcessMetrics().Collect(), memory.Collect(),
        TraceMetrics(exporter->get()).Collect(), SharedMemoryMetrics(nullptr).Collect()}) {
    for (const auto& family : families) exposed[family.name] = family;
  }
  for (const MetricSpec& spec : MetricTable()) {
    if (std::string_view(spec.name).starts_with("deepencoder_gpu_")) continue;  // gpu_monitor_test
    ASSERT_TRUE(exposed.contains(spec.name)) << spec.name;
    EXPECT_EQ(exposed[spec.name].help, spec.help);
    std::set<std::string> labels;
    ASSERT_FALSE(exposed[spec.name].metric.empty()) << spec.name;
    for (const auto& label : exposed[spec.name].metric.front().label) labels.insert(label.name);
    std::set<std::string> declared;
    std::istringstream list(spec.labels);
    for (std::string label; std::getline(list, label, ',');) declared.insert(label);
    EXPECT_EQ(labels, declared) << spec.name;
    exposed.erase(spec.name);
  }
  EXPECT_TRUE(exposed.empty()) << exposed.begin()->first;
  memory.SetBackends({std::weak_ptr<const Backend>()});
  EXPECT_TRUE(Samples(memory).empty());
}

TEST(MetricsTest, SharedMemoryIsCounted) {
  const SteadyClock clock;
  RegionTable table({.regions = 2, .bytes = 1000, .prefix = ClientObject::kPrefix}, &clock);
  const SharedMemoryMetrics metrics(&table);
  const std::string copied = "deepencoder_shared_memory_copied_bytes_total{direction=";
  {
    ClientObject object(100);
    const auto handle = table.RegisterHandle(object.key(), 100);
    ASSERT_TRUE(handle.ok()) << handle.status();
    const auto region = *table.Find(RegionTable::Scope::kHandle, *handle);
    ASSERT_TRUE(region->Read(0, 30).ok());
    ASSERT_TRUE(region->Write(50, std::as_bytes(std::span("rows", 4))).ok());
    auto samples = Samples(metrics);
    EXPECT_EQ(samples["deepencoder_shared_memory_regions"], "1");
    EXPECT_EQ(samples["deepencoder_shared_memory_bytes"], "100");
    EXPECT_EQ(samples[copied + "\"read\"}"], "30");
    EXPECT_EQ(samples[copied + "\"write\"}"], "4");
    object.Close();
  }
  table.Sweep();
  auto samples = Samples(metrics);
  EXPECT_EQ(samples["deepencoder_shared_memory_regions"], "0");
  EXPECT_EQ(samples["deepencoder_shared_memory_ended_total{reason=\"client_ended\"}"], "1");
}

TEST(MetricsTest, CountsWhatItHears) {
  Metrics metrics;
  metrics.OnImage(Mode::kBase, 273);  // warm-up
  metrics.StartCounting();
  metrics.OnImage(Mode::kGundam, 903);
  metrics.OnImage(Mode::kTiny, 73);
  metrics.OnBatch(1, 640, 5, 8, GraphUse::kHit, 0.02);
  metrics.OnBatch(1, 640, 8, 8, GraphUse::kMiss, 0.03);
  metrics.OnBatch(1, 512, 2, 2, GraphUse::kNone, 0.03);  // no graphs there: neither hit nor miss
  metrics.OnQueue(4, 4096);
  metrics.OnInFlight(3, 333);
  metrics.OnReject(RejectReason::kViews);
  metrics.OnDrop(DropReason::kDeadline, Stage::kCompute);
  metrics.OnCache(true);
  metrics.OnCacheSize(1000, 2);
  metrics.OnDecodePool(1, 8);
  metrics.OnStage(Stage::kDecode, Mode::kGundam, 0.004);
  metrics.OnCallStarted(Method::kEncodeImage);
  metrics.OnCallStarted(Method::kEncodeImage);
  metrics.OnAnswered(Method::kEncodeImage, 0.0123);
  metrics.OnCallEnded(Method::kEncodeImage, grpc::StatusCode::RESOURCE_EXHAUSTED);
  metrics.OnStreamImage(grpc::StatusCode::OK);
  metrics.SetServing(true);

  auto samples = Samples(*metrics.collectable());
  const auto expect = [&samples](const std::string& name, const std::string& value) {
    EXPECT_EQ(samples["deepencoder_" + name], value) << name;
  };
  expect("images_total{mode=\"gundam\"}", "1");
  expect("images_total{mode=\"base\"}", "0");
  expect("tokens_total", "976");
  expect("batch_padding_total{side=\"640\"}", "3");
  expect("batch_size_count{side=\"640\"}", "2");
  expect("batch_size_sum{side=\"640\"}", "13");
  expect("batch_size_bucket{side=\"640\",le=\"8\"}", "2");
  expect("batch_size_bucket{side=\"640\",le=\"4\"}", "0");
  expect("batch_compute_seconds_count{device=\"1\",side=\"640\"}", "2");
  expect("graph_launches_total{result=\"hit\"}", "1");
  expect("graph_launches_total{result=\"miss\"}", "1");
  expect("queue_items", "4");
  expect("queue_bytes", "4096");
  expect("in_flight", "3");
  expect("in_flight_bytes", "333");
  expect("rejected_total{reason=\"views\"}", "1");
  expect("rejected_total{reason=\"bytes\"}", "0");
  expect("dropped_total{before=\"compute\",reason=\"deadline\"}", "1");
  expect("cache_requests_total{result=\"hit\"}", "1");
  expect("cache_bytes", "1000");
  expect("cache_entries", "2");
  expect("decode_threads_busy", "1");
  expect("decode_threads", "8");
  expect("stage_duration_seconds_count{mode=\"gundam\",stage=\"decode\"}", "1");
  expect("stage_duration_seconds_bucket{mode=\"gundam\",stage=\"decode\",le=\"0.005\"}", "1");
  expect("stage_duration_seconds_bucket{mode=\"gundam\",stage=\"decode\",le=\"0.0033\"}", "0");
  expect("calls_active{method=\"EncodeImage\"}", "1");
  expect("request_duration_seconds_count{method=\"EncodeImage\"}", "1");
  expect("requests_total{code=\"RESOURCE_EXHAUSTED\",method=\"EncodeImage\"}", "1");
  expect("requests_total{code=\"OK\",method=\"EncodeImage\"}", "0");
  expect("stream_images_total{code=\"OK\"}", "1");
  expect("serving", "1");
}

TEST(MetricsTest, LosesNothingUnderManyThreads) {
  Metrics metrics;
  metrics.StartCounting();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&metrics, t] {
      for (int i = 0; i < 5000; ++i) {
        metrics.OnImage(Mode::kBase, 2);
        metrics.OnStage(Stage::kQueue, Mode::kBase, 0.01);
        metrics.OnBatch(t % 2, 1024, 1, 2, GraphUse::kHit, 0.01);
        if (i % 1000 == 0) metrics.collectable()->Collect();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  auto samples = Samples(*metrics.collectable());
  EXPECT_EQ(samples["deepencoder_images_total{mode=\"base\"}"], "20000");
  EXPECT_EQ(samples["deepencoder_tokens_total"], "40000");
  EXPECT_EQ(samples["deepencoder_stage_duration_seconds_count{mode=\"base\",stage=\"queue\"}"],
            "20000");
  EXPECT_EQ(samples["deepencoder_batch_padding_total{side=\"1024\"}"], "20000");
}

bool AThreadIsOneMore() {
  const auto threads = [] { return std::stod(Samples(ProcessMetrics())["process_threads"]); };
  const double before = threads();
  std::promise<void> done;
  std::thread waiting([&done] { done.get_future().wait(); });
  const double with = threads();
  done.set_value();
  waiting.join();
  return with == before + 1;
}

TEST(ProcessMetricsTest, AgreesWithTheKernel) {
  auto before = Samples(ProcessMetrics());
  EXPECT_GT(std::stod(before["process_resident_memory_bytes"]), 1 << 20);
  EXPECT_GT(std::stod(before["process_virtual_memory_bytes"]),
            std::stod(before["process_resident_memory_bytes"]));
  const std::ifstream open_file("/proc/self/status");
  auto after = Samples(ProcessMetrics());
  EXPECT_EQ(std::stod(after["process_open_fds"]), std::stod(before["process_open_fds"]) + 1);
  // The kernel may count a thread that was joined for a moment more, so not every comparison holds.
  bool agrees = AThreadIsOneMore();
  for (int i = 0; i < 1000 && !agrees; ++i) {
    absl::SleepFor(absl::Milliseconds(10));
    agrees = AThreadIsOneMore();
  }
  EXPECT_TRUE(agrees);
  EXPECT_GE(ProcessAge(), 0);
  EXPECT_LT(ProcessAge(), 3600);
}

TEST(ProcessMetricsTest, ShowsNoNumberThatItCannotRead) {
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none = {.rlim_cur = 0, .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  const auto samples = Samples(ProcessMetrics());
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_THAT(samples, testing::ElementsAre(testing::Pair("process_max_fds", "0")));
}

TEST(ExpositionTest, IsScrapedOnAFreePort) {
  Metrics metrics;
  const auto exposition =
      Exposition::Start("127.0.0.1:0", {metrics.collectable(), std::make_shared<ProcessMetrics>()});
  ASSERT_TRUE(exposition.ok()) << exposition.status();
  const std::string& address = (*exposition)->address();
  EXPECT_THAT(address, Not(testing::EndsWith(":0")));
  const std::string answer = HttpGet(address, "/metrics");
  EXPECT_THAT(answer, HasSubstr("# TYPE deepencoder_requests_total counter"));
  EXPECT_THAT(answer, HasSubstr("process_open_fds"));

  const auto again = Exposition::Start(address, {metrics.collectable()});
  ASSERT_FALSE(again.ok());
  EXPECT_THAT(std::string(again.status().message()), HasSubstr(address));
}

TEST(ExpositionTest, SilentConnectionsKeepNoScrapeWaiting) {
  Metrics metrics;
  const auto exposition = Exposition::Start("127.0.0.1:0", {metrics.collectable()});
  ASSERT_TRUE(exposition.ok()) << exposition.status();
  const std::string& address = (*exposition)->address();
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  to.sin_port = htons(static_cast<uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
  std::vector<int> silent;
  for (int i = 0; i < 12; ++i) {
    silent.push_back(socket(AF_INET, SOCK_STREAM, 0));
    ASSERT_EQ(connect(silent.back(), reinterpret_cast<const sockaddr*>(&to), sizeof(to)), 0);
  }
  const absl::Time begin = absl::Now();
  EXPECT_THAT(HttpGet(address, "/metrics"), HasSubstr("# TYPE deepencoder_requests_total"));
  // Four at most; the library's own threads and time would make it three minutes.
  EXPECT_LT(absl::Now() - begin, absl::Seconds(60));
  for (const int connection : silent) close(connection);
}

}  // namespace
}  // namespace deepencoder
