// What a decode worker costs beside decoding in this process: both in turn, image by image and with as
// many threads as the machine has cores.
//
//   decode_sandbox_bench ROUNDS FILE...
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <memory>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "encoder/image/view_plan.h"
#include "encoder/image/views.h"
#include "server/engine/image_decoder.h"
#include "server/sandbox/decode_worker.h"
#include "server/sandbox/sandboxed_decoder.h"

namespace deepencoder {
namespace {

using File = std::vector<std::byte>;

File Read(const char* path) {
  std::ifstream stream(path, std::ios::binary);
  const std::vector<char> chars{std::istreambuf_iterator<char>(stream), {}};
  const auto* bytes = reinterpret_cast<const std::byte*>(chars.data());
  return {bytes, bytes + chars.size()};
}

// As the engine does before a slot: pixels, then the views of mode base.
void Prepare(ImageDecoder& decoder, const File& file, bool with_views) {
  const auto held = decoder.Decode(file, {});
  if (!held.ok()) {
    std::fprintf(stderr, "%s\n", held.status().ToString().c_str());
    std::exit(EXIT_FAILURE);
  }
  if (!with_views) return;
  const auto plan =
      PlanViews(held->image.width(), held->image.height(), Mode::kBase, kDefaultMaxTiles);
  if (plan.ok()) RenderViews(held->image, *plan);
}

double Milliseconds(ImageDecoder& decoder, const File& file, bool with_views) {
  const absl::Time begin = absl::Now();
  Prepare(decoder, file, with_views);
  return absl::ToDoubleMilliseconds(absl::Now() - begin);
}

// Images a second of `threads` threads.
double Rate(ImageDecoder& decoder, const File& file, int threads, int images) {
  std::atomic<int> left{images};
  std::vector<std::thread> pool;
  const absl::Time begin = absl::Now();
  for (int i = 0; i < threads; ++i) {
    pool.emplace_back([&] {
      while (left.fetch_sub(1) > 0) Prepare(decoder, file, /*with_views=*/true);
    });
  }
  for (std::thread& thread : pool) thread.join();
  return images / absl::ToDoubleSeconds(absl::Now() - begin);
}

double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + std::ssize(values) / 2, values.end());
  return values[values.size() / 2];
}

void Compare(ImageDecoder& here, ImageDecoder& there, const char* path, int rounds, int threads) {
  const File file = Read(path);
  std::vector<double> ours, theirs, ours_views, theirs_views, rates, rates_there;
  for (int round = 0; round < rounds; ++round) {
    ours.push_back(Milliseconds(here, file, false));
    theirs.push_back(Milliseconds(there, file, false));
    ours_views.push_back(Milliseconds(here, file, true));
    theirs_views.push_back(Milliseconds(there, file, true));
  }
  for (int round = 0; round < 7; ++round) {
    rates.push_back(Rate(here, file, threads, rounds));
    rates_there.push_back(Rate(there, file, threads, rounds));
  }
  const char* name = std::max(std::string_view(path).rfind('/') + 1, size_t{0}) + path;
  std::printf(
      "%-22s decode p50 %.3f -> %.3f ms (%+.3f)  with views %.3f -> %.3f ms (%.3f)  "
      "rate %.1f -> %.1f /s (%.3f)\n",
      name, Median(ours), Median(theirs), Median(theirs) - Median(ours), Median(ours_views),
      Median(theirs_views), Median(theirs_views) / Median(ours_views), Median(rates),
      Median(rates_there), Median(rates_there) / Median(rates));
}

int Main(int argc, char** argv) {
  if (IsDecodeWorker(argc, argv)) return RunDecodeWorker(argc, argv);
  if (argc < 3) {
    std::fprintf(stderr, "usage: decode_sandbox_bench ROUNDS FILE...\n");
    return EXIT_FAILURE;
  }
  const int threads = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  InProcessDecoder here;
  auto there = SandboxedDecoder::Create({.worker = {.max_file_bytes = size_t{32} << 20,
                                                    .max_pixels = DecodeOptions{}.max_pixels,
                                                    .cpu_limit = absl::Seconds(30)},
                                         .workers = threads,
                                         .log = {}},
                                        nullptr);
  if (!there.ok()) {
    std::fprintf(stderr, "%s\n", there.status().ToString().c_str());
    return EXIT_FAILURE;
  }
  for (int i = 2; i < argc; ++i) Compare(here, **there, argv[i], std::atoi(argv[1]), threads);
  return EXIT_SUCCESS;
}

}  // namespace
}  // namespace deepencoder

int main(int argc, char** argv) { return deepencoder::Main(argc, argv); }
