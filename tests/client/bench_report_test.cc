// Results on paper: JSON there and back, tables, plots, comparisons, flags.
#include "client/bench_report.h"

#include <gmock/gmock.h>

#include <fstream>

#include "client/bench_command.h"
#include "client/bench_page.h"
#include "client/bench_plot.h"
#include "client/bench_result.h"
#include "client/commands.h"
#include "client/view_canvas.h"
#include "tests/work_folder.h"

namespace deepencoder::client {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::Pair;

Distribution Around(double p50) {
  return {200, p50, p50 / 2, p50, 2 * p50, 3 * p50, 4 * p50, 5 * p50};
}

BenchPoint Point(int concurrency, double rate, double throughput, double p50) {
  BenchPoint point;
  point.pace = {concurrency, rate};
  point.seconds = 1.0 / 3;
  point.images = 200;
  point.images_per_second = throughput;
  point.tokens_per_second = 73 * throughput;
  point.latency = Around(p50);
  point.latency_by_mode["tiny"] = Around(p50);
  point.latency_by_mode["base"] = Around(2 * p50);
  for (Distribution& stage : point.stages) stage = Around(p50 / 7);
  point.errors["UNAVAILABLE"] = 3;
  point.bytes_sent = uint64_t{5} << 32;
  point.bytes_received = 77;
  point.peak_outstanding = 9;
  point.unsent = 4;
  return point;
}

BenchResult Result() {
  BenchResult result;
  result.server = "unix:/a \"b\"";
  result.model = "deepseek-ocr";
  result.device = "cpu <x>";
  result.version = "0.1.0";
  result.commit = "abc";
  result.synthetic = true;
  result.mix = "tiny:1, base:1";
  result.images = "1 image (a.png)";
  result.dtype = "bf16";
  result.limits = "10s";
  result.points = {Point(1, 0, 100, 0.01), Point(8, 0, 400, 0.02)};
  return result;
}

TEST(BenchResultTest, ComesBackFromJsonAsItWas) {
  BenchResult result = Result();
  result.points.push_back(Point(0, 12.5, 12.4, 0.1));
  const auto read = ParseBenchResult(ToJson(result));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(ToJson(*read), ToJson(result));
  EXPECT_EQ(read->server, result.server);
  EXPECT_TRUE(read->synthetic);
  ASSERT_EQ(read->points.size(), 3U);
  EXPECT_EQ(read->points[1].pace.concurrency, 8);
  EXPECT_EQ(read->points[2].pace.rate, 12.5);
  EXPECT_EQ(read->points[0].latency, result.points[0].latency);
  EXPECT_EQ(read->points[0].seconds, 1.0 / 3);
  EXPECT_EQ(read->points[0].bytes_sent, uint64_t{5} << 32);
  EXPECT_THAT(read->points[0].errors, ElementsAre(Pair("UNAVAILABLE", 3)));
}

TEST(BenchResultTest, RefusesOtherFiles) {
  EXPECT_THAT(ParseBenchResult("{}").status().message(), HasSubstr("no result of"));
  std::string json = ToJson(Result());
  const std::string key = "\"images_per_second\":";
  json.replace(json.find(key), key.size(), "\"images_per_sec\":");
  const absl::Status status = ParseBenchResult(json).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("points[0]: images_per_second: is missing"));
  EXPECT_EQ(ReadBenchResult("/no/such/file").status().code(), absl::StatusCode::kNotFound);
}

TEST(BenchReportTest, Tables) {
  const BenchResult result = Result();
  EXPECT_THAT(HeadText(result, {}), HasSubstr("SYNTHETIC"));
  EXPECT_EQ(PointHeader(false, {}).size(), PointLine(result.points[0], {}).size());
  EXPECT_THAT(PointLine(result.points[0], {}), HasSubstr("30.00"));  // p99
  const std::string details = DetailText(result, {});
  EXPECT_THAT(details, HasSubstr("compute"));
  EXPECT_THAT(details, HasSubstr("base"));
  EXPECT_THAT(details, HasSubstr("UNAVAILABLE: 6 requests"));
  EXPECT_THAT(details, HasSubstr("overloaded at concurrency 8: 4 requests"));
  EXPECT_THAT(details, HasSubstr("p99.9 is the slowest"));
  EXPECT_THAT(details, Not(HasSubstr("\x1b")));
  EXPECT_THAT(DetailText(result, {.colours = true}), HasSubstr("\x1b[31mUNAVAILABLE"));
}

TEST(BenchReportTest, ComparesPointByPoint) {
  const BenchResult a = Result();
  BenchResult b = Result();
  b.points = {Point(8, 0, 300, 0.03), Point(16, 0, 500, 0.05)};
  b.mix = "tiny";
  const Comparison comparison = Compare(a, b, {});
  EXPECT_EQ(comparison.points, 1);
  EXPECT_DOUBLE_EQ(comparison.worst_loss, 0.25);
  EXPECT_NEAR(comparison.worst_growth, 0.5, 1e-12);
  EXPECT_THAT(comparison.text, HasSubstr("-25.0%"));
  EXPECT_THAT(comparison.text, HasSubstr("not the same modes"));
  EXPECT_EQ(Compare(a, a, {}).worst_loss, 0);
}

TEST(BenchPlotTest, Ticks) {
  EXPECT_THAT(RoundTicks(7, 8), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  EXPECT_THAT(RoundTicks(450, 8), ElementsAre(0, 100, 200, 300, 400, 500));
  EXPECT_THAT(LogTicks(3, 60), ElementsAre(2, 5, 10, 20, 50, 100));
  EXPECT_THAT(LogTicks(10, 10), ElementsAre(10, 20));
}

TEST(BenchPlotTest, DrawsEverySeries) {
  const BenchResult a = Result();
  BenchResult empty = Result();
  empty.points.clear();
  const std::string svg = LatencyPlot({{"A", &a}, {"B", &empty}});
  EXPECT_THAT(svg, HasSubstr("cpu &lt;x&gt;"));
  size_t circles = 0;
  for (size_t at = 0; (at = svg.find("<circle", at)) != std::string::npos; ++at) ++circles;
  EXPECT_EQ(circles, 4U);
  EXPECT_THAT(svg, HasSubstr(">8</text>"));
  EXPECT_THAT(LatencyPlot({{"", &empty}}), HasSubstr("no image was answered"));
}

TEST(BenchCommandTest, ParsesLists) {
  EXPECT_THAT(*ParseMix("gundam:3,base"),
              ElementsAre(Pair(Mode::kGundam, 3.0), Pair(Mode::kBase, 1.0)));
  EXPECT_THAT(*ParseNumbers("1,2.5", 10, false), ElementsAre(1, 2.5));
  EXPECT_THAT(*ParseSizes("640x480,1x1"), ElementsAre(Pair(640, 480), Pair(1, 1)));
  for (const char* text :
       {"", "x", "gundam:", "gundam:0", "gundam:-1", "gundam,,base", "base:nan"}) {
    EXPECT_FALSE(ParseMix(text).ok()) << text;
  }
  for (const char* text : {"", "0", "-1", "11", "1,", "2.5", "1e99", "1x"}) {
    EXPECT_FALSE(ParseNumbers(text, 10, true).ok()) << text;
  }
  for (const char* text : {"", "640", "0x5", "1x2x3", "640x", "20001x5"}) {
    EXPECT_FALSE(ParseSizes(text).ok()) << text;
  }
}

TEST(BenchCommandTest, ExitStatuses) {
  const std::string a = WorkFolder() + "/a.json", b = WorkFolder() + "/b.json";
  const std::string svg = WorkFolder() + "/bench.svg";
  BenchResult worse = Result();
  worse.points[1].images_per_second = 360;
  std::ofstream(a) << ToJson(Result());
  std::ofstream(b) << ToJson(worse);
  EXPECT_EQ(RunBench({"--compare", a, b, "--plot=" + svg}), kExitOk);
  std::string first;
  std::getline(std::ifstream(svg), first);
  EXPECT_THAT(first, HasSubstr("<svg"));
  EXPECT_EQ(RunBench({"--compare", a, b, "--worse=5"}), kExitFailed);
  EXPECT_EQ(RunBench({"--compare", a, b, "--worse=15"}), kExitOk);
  EXPECT_EQ(RunBench({"--compare", a}), kExitUsage);
  EXPECT_EQ(RunBench({"--compare", a, "/no/such/file"}), kExitFailed);
  EXPECT_EQ(RunBench({"--rate=1", "--concurrency=1"}), kExitUsage);
  EXPECT_EQ(RunBench({"/no/such/image"}), kExitFailed);
  EXPECT_EQ(RunBench({"--server=127.0.0.1:1", "--connect-timeout=50ms"}), kExitUnreachable);
}

TEST(BenchPageTest, TheSameBytesForTheSameSize) {
  const auto page = SyntheticPage(300, 200);
  ASSERT_TRUE(page.ok()) << page.status();
  EXPECT_EQ(*page, *SyntheticPage(300, 200));
  EXPECT_GT(page->size(), 5000U);  // there is something on it
  EXPECT_TRUE(SyntheticPage(1, 1).ok());
}

}  // namespace
}  // namespace deepencoder::client
