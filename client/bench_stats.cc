#include "client/bench_stats.h"

#include <algorithm>
#include <numeric>

namespace deepencoder::client {
namespace {

// `per_mille` of `sorted`, which is not empty. In integers: 0.9 * 10 must not round to rank 10.
double NearestRank(const std::vector<double>& sorted, size_t per_mille) {
  const size_t rank = (sorted.size() * per_mille + 999) / 1000;
  return sorted[std::max<size_t>(rank, 1) - 1];
}

size_t BytesOf(const Image& image) {
  return image.encoded.empty() ? image.rgb.size() : image.encoded.size();
}

// In the order of kStages.
std::array<double, kStages.size()> StagesOf(const Timings& times, double latency) {
  return {times.decode,   times.views, times.queue,          times.compute,
          times.assemble, times.total, latency - times.total};
}

}  // namespace

Distribution Summarise(std::vector<double> samples) {
  if (samples.empty()) return {};
  std::sort(samples.begin(), samples.end());
  Distribution result;
  result.count = static_cast<int64_t>(samples.size());
  result.mean =
      std::accumulate(samples.begin(), samples.end(), 0.0) / static_cast<double>(samples.size());
  result.min = samples.front();
  result.p50 = NearestRank(samples, 500);
  result.p90 = NearestRank(samples, 900);
  result.p99 = NearestRank(samples, 990);
  result.p999 = NearestRank(samples, 999);
  result.max = samples.back();
  return result;
}

int64_t BenchPoint::failed() const {
  int64_t sum = 0;
  for (const auto& [code, count] : errors) sum += count;
  return sum;
}

BenchPoint Evaluate(const LoadRun& run, const std::vector<WorkItem>& items) {
  BenchPoint point;
  point.pace = run.pace;
  point.seconds = absl::ToDoubleSeconds(run.window_end - run.window_start);
  if (point.seconds > 0) {
    point.images_per_second = static_cast<double>(run.images_in_window) / point.seconds;
    point.tokens_per_second = static_cast<double>(run.rows_in_window) / point.seconds;
  }
  point.peak_outstanding = run.peak_outstanding;
  point.unsent = run.unsent;

  std::vector<double> latencies;
  std::map<std::string, std::vector<double>> by_mode;
  std::array<std::vector<double>, kStages.size()> stages;
  for (const Sample& sample : run.samples) {
    const WorkItem& item = items[sample.item];
    point.bytes_sent += BytesOf(*item.image);
    if (sample.code != absl::StatusCode::kOk) {
      ++point.errors[absl::StatusCodeToString(sample.code)];
      continue;
    }
    point.bytes_received += sample.bytes;
    const double latency = absl::ToDoubleSeconds(sample.finished - sample.due);
    latencies.push_back(latency);
    by_mode[std::string(Name(item.mode))].push_back(latency);
    const auto parts = StagesOf(sample.timings, latency);
    for (size_t i = 0; i < parts.size(); ++i) stages[i].push_back(parts[i]);
  }
  point.images = static_cast<int64_t>(latencies.size());
  point.latency = Summarise(std::move(latencies));
  for (auto& [mode, samples] : by_mode) point.latency_by_mode[mode] = Summarise(std::move(samples));
  for (size_t i = 0; i < stages.size(); ++i) point.stages[i] = Summarise(std::move(stages[i]));
  return point;
}

}  // namespace deepencoder::client
