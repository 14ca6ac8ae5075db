// The CPU backend's side of cpu_encoder.py: loads a model, then times one Encode for every line it
// reads.
//
//   cpu_encoder_bench CHECKPOINT --type bf16|fp32 --side PIXELS --batch N --threads N
//
// Answers each line of standard input with the milliseconds of one call, from RGB8 views in memory
// to rows in the reply's type, and the end of the input with "peak <bytes>": the most memory that
// was resident.
#include <sys/resource.h>

#include <chrono>
#include <cstdlib>
#include <iostream>
#include <map>
#include <string>
#include <vector>

#include "encoder/backend/backend.h"
#include "encoder/model/config.h"

namespace deepencoder {
namespace {

int Fail(const std::string& message) {
  std::cerr << message << "\n";
  return EXIT_FAILURE;
}

// A picture with something in it everywhere, so that no step meets only zeros.
RgbImage Picture(int side) {
  cv::Mat pixels(side, side, CV_8UC3);
  uint32_t state = 1;
  for (uint8_t *at = pixels.data, *end = at + pixels.total() * 3; at != end; ++at) {
    state = state * 1664525u + 1013904223u;
    *at = static_cast<uint8_t>(state >> 24);
  }
  return RgbImage(pixels);
}

int Run(const std::string& folder, const std::map<std::string, std::string>& options) {
  const std::optional<DType> type = ParseDType(options.at("--type"));
  const int side = std::stoi(options.at("--side")), batch = std::stoi(options.at("--batch"));
  if (!type || !IsViewSide(side)) return Fail("unknown type or side");
  const absl::StatusOr<std::unique_ptr<Checkpoint>> checkpoint = Checkpoint::Open(folder);
  if (!checkpoint.ok()) return Fail(checkpoint.status().ToString());
  const absl::StatusOr<std::unique_ptr<Backend>> backend =
      CreateCpuBackend(**checkpoint, {.compute = *type,
                                      .sides = {side},
                                      .batch_buckets = {batch},
                                      .threads = std::stoi(options.at("--threads"))});
  if (!backend.ok()) return Fail(backend.status().ToString());
  const absl::StatusOr<std::unique_ptr<EncoderSlot>> slot = (*backend)->CreateSlot();
  if (!slot.ok()) return Fail(slot.status().ToString());

  const ViewPlan plan = {Mode::kBase, side, side, {}, {{side, side, side, 1, 1, 0, 0}}};
  const absl::StatusOr<std::shared_ptr<const ViewSet>> views =
      (*backend)->MakeViews(Picture(side), plan);
  if (!views.ok()) return Fail(views.status().ToString());
  const int lines = OutputGridOf(side);
  const size_t line_bytes = static_cast<size_t>(lines) * kEmbeddingWidth * SizeOf(*type);
  std::vector<std::byte> rows(line_bytes * lines * batch);
  std::vector<EncodeItem> items;
  for (int i = 0; i < batch; ++i) {
    items.push_back({views->get(), 0, *type, rows.data() + i * lines * line_bytes, line_bytes});
  }

  for (std::string line; std::getline(std::cin, line);) {
    const auto start = std::chrono::steady_clock::now();
    if (const absl::Status status = (*slot)->Encode(side, items, nullptr); !status.ok()) {
      return Fail(status.ToString());
    }
    const std::chrono::duration<double, std::milli> spent =
        std::chrono::steady_clock::now() - start;
    std::cout << spent.count() << std::endl;
  }
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  std::cout << "peak " << usage.ru_maxrss * 1024L << std::endl;
  return EXIT_SUCCESS;
}

}  // namespace
}  // namespace deepencoder

int main(int argc, char** argv) {
  std::map<std::string, std::string> options = {
      {"--type", "fp32"}, {"--side", "1024"}, {"--batch", "1"}, {"--threads", "0"}};
  for (int i = 2; i + 1 < argc; i += 2) {
    if (!options.contains(argv[i]))
      return deepencoder::Fail("unknown option " + std::string(argv[i]));
    options[argv[i]] = argv[i + 1];
  }
  if (argc < 2 || argc % 2 != 0)
    return deepencoder::Fail("usage: cpu_encoder_bench CHECKPOINT [--option value]...");
  return deepencoder::Run(argv[1], options);
}
