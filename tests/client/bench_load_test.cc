// The load generator and its statistics against a server of arithmetic on a clock of its own.
#include "client/bench_load.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <functional>
#include <queue>

#include "client/bench_stats.h"

namespace deepencoder::client {
namespace {

using testing::DoubleNear;
using testing::ElementsAre;
using testing::Pair;

constexpr absl::Duration kMs = absl::Milliseconds(1);

// Serves one request after another, each for as long as `service` says. Time passes only in Next.
class FakeServer : public Target {
 public:
  using Service = std::function<absl::Duration(uint64_t ticket, absl::Time start)>;
  explicit FakeServer(Service service) : service_(std::move(service)) {}

  absl::Time Now() override { return now_; }
  void Send(uint64_t ticket, const WorkItem& item) override {
    const absl::Time start = std::max(now_, free_);
    free_ = start + service_(ticket, start);
    Answer answer;
    answer.ticket = ticket;
    answer.finished = free_;
    answer.code = fails_(ticket) ? absl::StatusCode::kResourceExhausted : absl::StatusCode::kOk;
    answer.rows = 10;
    answer.bytes = 100;
    answer.timings.compute = 0.002;
    answer.timings.total = 0.004;
    answers_.push(answer);
    ++sent_of_[item.name];
  }
  std::optional<Answer> Next(absl::Time until) override {
    if (answers_.empty() || answers_.front().finished > until) {
      now_ = until;
      return std::nullopt;
    }
    const Answer answer = answers_.front();
    answers_.pop();
    now_ = std::max(now_, answer.finished);
    return answer;
  }

  void Fail(std::function<bool(uint64_t)> fails) { fails_ = std::move(fails); }
  const std::map<std::string, int>& sent_of() const { return sent_of_; }

 private:
  const Service service_;
  std::function<bool(uint64_t)> fails_ = [](uint64_t) { return false; };
  absl::Time now_ = absl::UnixEpoch(), free_ = absl::UnixEpoch();
  std::queue<Answer> answers_;
  std::map<std::string, int> sent_of_;
};

FakeServer::Service Constant(absl::Duration duration) {
  return [duration](uint64_t, absl::Time) { return duration; };
}

std::vector<WorkItem> OneItem() {
  Image image;
  image.encoded = "1234567";
  return {{"a", std::make_shared<const Image>(image), Mode::kTiny, 1}};
}

LoadSettings ForTime(absl::Duration warmup, absl::Duration duration) {
  LoadSettings settings;
  settings.warmup = warmup;
  settings.duration = duration;
  return settings;
}

LoadSettings ForCount(int64_t count) {
  LoadSettings settings = ForTime(absl::ZeroDuration(), absl::ZeroDuration());
  settings.count = count;
  return settings;
}

TEST(BenchLoadTest, ClosedLoopKeepsItsRequestsUnderWay) {
  FakeServer server(Constant(10 * kMs));
  const auto items = OneItem();
  const LoadRun run = RunLoad(server, items, {.concurrency = 4}, ForCount(8));
  EXPECT_EQ(run.peak_outstanding, 4);
  ASSERT_EQ(run.samples.size(), 8U);
  const BenchPoint point = Evaluate(run, items);
  // One at a time is served: 8 images in 80 ms; the first four wait for those before them.
  EXPECT_DOUBLE_EQ(point.seconds, 0.08);
  EXPECT_DOUBLE_EQ(point.images_per_second, 100);
  EXPECT_DOUBLE_EQ(point.tokens_per_second, 1000);
  EXPECT_DOUBLE_EQ(point.latency.min, 0.01);
  EXPECT_DOUBLE_EQ(point.latency.max, 0.04);
  EXPECT_EQ(point.bytes_sent, 8U * 7U);
  EXPECT_EQ(point.bytes_received, 800U);
}

TEST(BenchLoadTest, WarmUpIsNotCounted) {
  // The first 5 requests are slow, as on a cold server.
  FakeServer server([](uint64_t ticket, absl::Time) { return ticket < 5 ? 100 * kMs : 10 * kMs; });
  const auto items = OneItem();
  const LoadRun run = RunLoad(server, items, {.concurrency = 1},
                              ForTime(absl::Milliseconds(500), absl::Milliseconds(100)));
  const BenchPoint point = Evaluate(run, items);
  EXPECT_EQ(run.window_start, absl::UnixEpoch() + absl::Milliseconds(500));
  EXPECT_EQ(point.images, 10);
  EXPECT_DOUBLE_EQ(point.latency.max, 0.01);
  EXPECT_DOUBLE_EQ(point.images_per_second, 100);
}

TEST(BenchLoadTest, WarmUpByCountWaitsForAnswers) {
  FakeServer server(Constant(10 * kMs));
  LoadSettings settings = ForCount(3);
  settings.warmup_count = 4;
  const LoadRun run = RunLoad(server, OneItem(), {.concurrency = 1}, settings);
  EXPECT_EQ(run.window_start, absl::UnixEpoch() + 40 * kMs);
  EXPECT_EQ(run.samples.size(), 3U);
}

TEST(BenchLoadTest, OpenLoopOffersItsRateWhateverTheServerDoes) {
  FakeServer server(Constant(kMs / 1000));
  const auto items = OneItem();
  const LoadRun run =
      RunLoad(server, items, {.rate = 1000}, ForTime(absl::Seconds(1), absl::Seconds(10)));
  const BenchPoint point = Evaluate(run, items);
  // Poisson: 10000 expected, with a standard deviation of 100.
  EXPECT_THAT(static_cast<double>(point.images), DoubleNear(10'000, 500));
  EXPECT_EQ(point.unsent, 0);
  // Gaps of an exponential distribution: as much deviation as mean.
  double sum = 0, squares = 0;
  for (size_t i = 1; i < run.samples.size(); ++i) {
    const double gap = absl::ToDoubleSeconds(run.samples[i].due - run.samples[i - 1].due);
    sum += gap;
    squares += gap * gap;
  }
  const double n = static_cast<double>(run.samples.size() - 1), mean = sum / n;
  EXPECT_THAT(std::sqrt(squares / n - mean * mean) / mean, DoubleNear(1, 0.1));
}

TEST(BenchLoadTest, AStallDelaysAllThatWereDueMeanwhile) {
  // The server stands still for one second and is idle otherwise: with 100 requests a second about
  // 100 are due during the stall, and wait half a second on average. Counting from the time of
  // sending with one request under way would have seen a single slow one.
  const auto stall = [](uint64_t ticket, absl::Time) {
    return ticket == 200 ? absl::Seconds(1) : kMs / 10;
  };
  FakeServer server(stall);
  const auto items = OneItem();
  LoadSettings settings = ForTime(absl::ZeroDuration(), absl::Seconds(10));
  settings.max_outstanding = 1;  // what is due waits in the client: the latency must still count it
  const LoadRun run = RunLoad(server, items, {.rate = 100}, settings);
  int64_t slow = 0;
  for (const Sample& sample : run.samples) slow += sample.finished - sample.due > 100 * kMs ? 1 : 0;
  EXPECT_GT(slow, 60);
  EXPECT_EQ(run.peak_outstanding, 1);
  EXPECT_GT(Evaluate(run, items).latency.p99, 0.5);
}

TEST(BenchLoadTest, SaysWhatAnOverloadKeptFromBeingSent) {
  FakeServer server(Constant(100 * kMs));  // 10 a second of the 100 that are due
  LoadSettings settings = ForTime(absl::ZeroDuration(), absl::Seconds(10));
  settings.max_outstanding = 2;
  const LoadRun run = RunLoad(server, OneItem(), {.rate = 100}, settings);
  EXPECT_THAT(static_cast<double>(run.unsent) + static_cast<double>(run.samples.size()),
              DoubleNear(1000, 150));
  EXPECT_GT(run.unsent, 800);
}

TEST(BenchLoadTest, CountsErrorsApart) {
  FakeServer server(Constant(10 * kMs));
  server.Fail([](uint64_t ticket) { return ticket % 4 == 0; });
  const auto items = OneItem();
  const BenchPoint point = Evaluate(RunLoad(server, items, {.concurrency = 1}, ForCount(8)), items);
  EXPECT_THAT(point.errors, ElementsAre(Pair("RESOURCE_EXHAUSTED", 2)));
  EXPECT_EQ(point.failed(), 2);
  EXPECT_EQ(point.images, 6);
  EXPECT_DOUBLE_EQ(point.images_per_second, 75);
  EXPECT_EQ(point.latency.count, 6);
}

TEST(BenchLoadTest, MixesByWeightAndRepeatsWithItsSeed) {
  std::vector<WorkItem> items = OneItem();
  items.push_back(items.front());
  items.back().name = "b";
  items.back().mode = Mode::kBase;
  items.back().weight = 3;
  FakeServer server(Constant(kMs)), again(Constant(kMs));
  const BenchPoint point =
      Evaluate(RunLoad(server, items, {.concurrency = 2}, ForCount(4000)), items);
  EXPECT_THAT(static_cast<double>(server.sent_of().at("b")), DoubleNear(3000, 150));
  EXPECT_EQ(point.latency_by_mode.at("base").count, server.sent_of().at("b"));
  EXPECT_EQ(point.latency_by_mode.at("tiny").count, server.sent_of().at("a"));
  RunLoad(again, items, {.concurrency = 2}, ForCount(4000));
  EXPECT_EQ(server.sent_of(), again.sent_of());
}

TEST(BenchStatsTest, PercentilesAreNearestRanks) {
  std::vector<double> samples;
  for (int i = 1000; i >= 1; --i) samples.push_back(i);
  const Distribution d = Summarise(samples);
  EXPECT_EQ(d, (Distribution{1000, 500.5, 1, 500, 900, 990, 999, 1000}));
  EXPECT_EQ(Summarise({}), Distribution());
  EXPECT_EQ(Summarise({7}), (Distribution{1, 7, 7, 7, 7, 7, 7, 7}));
  // 0.9 * 10 is rank 9, although 0.9 has no exact double.
  EXPECT_EQ(Summarise({1, 2, 3, 4, 5, 6, 7, 8, 9, 10}),
            (Distribution{10, 5.5, 1, 5, 9, 10, 10, 10}));
}

TEST(BenchStatsTest, StagesAreThoseOfTheServerAndTheRest) {
  FakeServer server(Constant(10 * kMs));
  const auto items = OneItem();
  const BenchPoint point = Evaluate(RunLoad(server, items, {.concurrency = 1}, ForCount(4)), items);
  EXPECT_EQ(kStages[3], "compute");
  EXPECT_DOUBLE_EQ(point.stages[3].mean, 0.002);
  EXPECT_EQ(kStages[5], "server");
  EXPECT_DOUBLE_EQ(point.stages[5].p99, 0.004);
  EXPECT_EQ(kStages[6], "outside");
  EXPECT_NEAR(point.stages[6].mean, 0.006, 1e-12);
}

}  // namespace
}  // namespace deepencoder::client
