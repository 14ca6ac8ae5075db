// RunStress against the real server on the CPU, and on a CUDA backend that is none.
#include "tests/integration/stress/stress.h"

#include <gmock/gmock.h>

#include <csignal>
#include <cstdlib>

#include "tests/integration/server_fixture.h"

namespace deepencoder {
namespace {

// DEEPENCODER_STRESS_SECONDS makes it longer than a run of all tests allows.
absl::Duration Duration() {
  const char* seconds = std::getenv("DEEPENCODER_STRESS_SECONDS");
  return absl::Seconds(seconds == nullptr ? 15 : std::atoi(seconds));
}

double CountOf(const std::map<std::string, double>& metrics, const std::string& prefix) {
  double sum = 0;
  for (const auto& [name, value] : metrics) {
    if (name.starts_with(prefix)) sum += value;
  }
  return sum;
}

// Nothing is under way any more, and every call and streamed image is in the counter of its code.
void ExpectCounted(RunningServer& server, int64_t answers) {
  EXPECT_TRUE(Eventually([&] {
    auto now = server.Metrics();
    return now["deepencoder_in_flight"] == 0 && now["deepencoder_in_flight_bytes"] == 0 &&
           now["deepencoder_queue_items"] == 0 && CountOf(now, "deepencoder_calls_active") == 0;
  }));
  const auto end = server.Metrics();
  const double counted =
      CountOf(end, "deepencoder_stream_images_total") +
      CountOf(end, R"(deepencoder_request_duration_seconds_count{method="EncodeImage"})");
  EXPECT_LE(counted, static_cast<double>(answers));
  // A call that is cancelled before it reaches the server is none that it could count.
  const double dropped = CountOf(end, "deepencoder_dropped_total");
  std::printf("%.0f answers counted of %lld, %.0f dropped on the way\n", counted,
              static_cast<long long>(answers), dropped);
}

void ExpectEveryReplyToBeTheOneAlone(RunningServer& server, StressReport* seen = nullptr) {
  ASSERT_TRUE(server.ready()) << server.process().Stderr();
  StressOptions options;
  options.server = server.address("unix");
  for (const char* name : {"small_page.png", "palette.png", "tall.jpg", "exif_6.jpg", "gray.jpg",
                           "lossy.webp", "s444.jpg", "one_pixel.png"}) {
    options.images.emplace_back(name, ReadImage(name).encoded);
  }
  options.items = 16;
  options.sharing = options.clients / 4;
  options.duration = Duration();
  const auto report = RunStress(options);
  ASSERT_TRUE(report.ok()) << report.status();
  std::printf("%s", report->ToJson().c_str());
  EXPECT_THAT(report->wrong, testing::IsEmpty());
  EXPECT_GT(report->right(), 0);
  if (seen != nullptr) *seen = *report;
  ExpectCounted(server, report->calls + options.items);
  server.process().Signal(SIGTERM);
  EXPECT_EQ(server.process().Wait(), 0) << server.process().Stderr();
}

TEST(StressTest, EveryReplyIsTheOneThatTheImageGetsAlone) {
  RunningServer server(
      "stress", {"--modes=tiny,small,gundam", "--no-warm-up", "--slots=2", "--batch-buckets=1,2,4",
                 "--max-images-in-flight=24", "--shared-memory"});
  ExpectEveryReplyToBeTheOneAlone(server);
}

// A slot of the CUDA backend has two batches under way at a time.
TEST(StressTest, TheSameWhereASlotsBatchesOverlap) {
  setenv("DEEPENCODER_CUDA_LIBRARY", FAKE_CUDA, 1);
  RunningServer server("stress",
                       {"--device=cuda", "--modes=tiny,small,base,gundam", "--compute-dtype=bf16",
                        "--max-images-in-flight=64", "--shared-memory"});
  unsetenv("DEEPENCODER_CUDA_LIBRARY");
  StressReport report;
  ExpectEveryReplyToBeTheOneAlone(server, &report);
  EXPECT_GT(report.good["image in shared memory"], 0);
}

}  // namespace
}  // namespace deepencoder
