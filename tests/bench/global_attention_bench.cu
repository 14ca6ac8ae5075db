// Times LaunchGlobalAttention alone and prints a JSON object a line.
//   global_attention_bench [--grid 64] [--batch 8] [--type bf16|fp16]
//                          [--kernel auto|hopper|portable]
//                          [--far 1] [--sets 1] [--warmup 8] [--repeats 30]
// --far 1   each query's own key lies half the grid away: the Hopper kernel repeats every row
// --sets n  rotates among n inputs, so that none is found in the L2 cache if n of them do not fit
// ms is the median of `repeats` launches after `warmup`, each between two CUDA events; spread is
// the range of the middle 80 %, as a fraction of the median.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "kernels/global_attention.h"

namespace {

using namespace deepencoder;           // NOLINT(google-build-using-namespace)
using namespace deepencoder::kernels;  // NOLINT(google-build-using-namespace)

constexpr int kHeads = 12, kModel = kHeads * kGlobalAttentionHeadSize;

void Check(const Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.message().c_str());
  std::exit(1);
}
#define CHECK_CUDA(call) Check(CudaStatus((call), #call, __FILE__, __LINE__))

// A normal number from a hash of its place.
float Normal(uint64_t at) {
  const auto hash = [](uint64_t x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
  };
  const uint64_t bits = hash(at * 0x9e3779b97f4a7c15ull + 1);
  const double u = ((bits >> 40) + 1) * 0x1p-24, v = (bits & 0xffffff) * 0x1p-24;
  return static_cast<float>(std::sqrt(-2 * std::log(u)) * std::cos(6.283185307179586 * v));
}

struct Options {
  int grid = 64, batch = 8, sets = 1, warmup = 8, repeats = 30;
  bool far = false;
  DType type = DType::kBf16;
  GlobalAttentionKernel kernel = GlobalAttentionKernel::kAuto;
  std::string kernel_name = "auto";
};

Options Parse(int argc, char** argv) {
  Options options;
  const std::map<std::string, int*> numbers = {{"--grid", &options.grid},
                                               {"--batch", &options.batch},
                                               {"--sets", &options.sets},
                                               {"--warmup", &options.warmup},
                                               {"--repeats", &options.repeats}};
  const std::map<std::string, GlobalAttentionKernel> kernels = {
      {"auto", GlobalAttentionKernel::kAuto},
      {"hopper", GlobalAttentionKernel::kHopper},
      {"portable", GlobalAttentionKernel::kPortable}};
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string flag = argv[i], value = argv[i + 1];
    if (const auto number = numbers.find(flag); number != numbers.end()) {
      *number->second = std::atoi(value.c_str());
    } else if (flag == "--far") {
      options.far = value == "1";
    } else if (flag == "--type" && (value == "bf16" || value == "fp16")) {
      options.type = value == "bf16" ? DType::kBf16 : DType::kFp16;
    } else if (flag == "--kernel" && kernels.count(value) != 0) {
      options.kernel = kernels.at(value), options.kernel_name = value;
    } else {
      Check(InvalidArgument("unknown option " + flag + " " + value));
    }
  }
  if (argc % 2 == 0) Check(InvalidArgument(std::string("no value for ") + argv[argc - 1]));
  if (std::min({options.grid, options.batch, options.sets, options.repeats}) < 1 ||
      options.warmup < 0) {
    Check(InvalidArgument("grid, batch, sets and repeats must be at least 1, warmup at least 0"));
  }
  return options;
}

uint16_t Round(DType type, float x) {
  return type == DType::kBf16 ? FloatToBf16(x) : FloatToFp16(x);
}

void* Upload(const std::vector<uint16_t>& values) {
  void* data = nullptr;
  CHECK_CUDA(cudaMalloc(&data, values.size() * 2));
  CHECK_CUDA(cudaMemcpy(data, values.data(), values.size() * 2, cudaMemcpyHostToDevice));
  return data;
}

// [batch][tokens][3][heads][64]; the images of a batch are the same.
std::vector<uint16_t> MakeQkv(const Options& options, int set) {
  const int64_t tokens = int64_t{1} * options.grid * options.grid, image = tokens * 3 * kModel;
  std::vector<uint16_t> one(image);
  for (int64_t i = 0; i < image; ++i)
    one[i] = Round(options.type, Normal(i + set * image) * (options.far ? 5.f : 1.f));
  if (options.far) {
    for (int64_t i = 0; i < tokens; ++i) {
      const int64_t match = (i + tokens / 2) % tokens;
      std::copy_n(&one[i * 3 * kModel], kModel, &one[match * 3 * kModel + kModel]);
    }
  }
  std::vector<uint16_t> all;
  for (int b = 0; b < options.batch; ++b) all.insert(all.end(), one.begin(), one.end());
  return all;
}

std::vector<uint16_t> MakeTable(const Options& options, int seed) {
  std::vector<uint16_t> table((2 * options.grid - 1) * kGlobalAttentionHeadSize);
  for (size_t i = 0; i < table.size(); ++i)
    table[i] = Round(options.type, 0.25f * Normal((uint64_t{1} << 40) * seed + i));
  return table;
}

}  // namespace

int main(int argc, char** argv) {
  const Options options = Parse(argc, argv);
  const int64_t tokens = int64_t{1} * options.grid * options.grid;
  const void* const rel_h = Upload(MakeTable(options, 1));
  const void* const rel_w = Upload(MakeTable(options, 2));
  unsigned long long* repeated = nullptr;
  CHECK_CUDA(cudaMalloc(&repeated, sizeof(*repeated)));
  CHECK_CUDA(cudaMemset(repeated, 0, sizeof(*repeated)));
  std::vector<GlobalAttentionArgs> sets;
  for (int set = 0; set < options.sets; ++set) {
    void* const qkv = Upload(MakeQkv(options, set));
    void* out = nullptr;
    CHECK_CUDA(cudaMalloc(&out, options.batch * tokens * kModel * 2));
    sets.push_back(FusedGlobalAttention(options.type, options.batch, kHeads, options.grid,
                                        options.grid, qkv, rel_h, rel_w, out));
    sets.back().kernel = options.kernel;
    sets.back().repeated_rows = repeated;
  }

  cudaEvent_t start = nullptr, stop = nullptr;
  CHECK_CUDA(cudaEventCreate(&start));
  CHECK_CUDA(cudaEventCreate(&stop));
  std::vector<float> times;
  for (int i = 0; i < options.warmup + options.repeats; ++i) {
    CHECK_CUDA(cudaEventRecord(start));
    Check(LaunchGlobalAttention(sets[i % options.sets], nullptr));
    CHECK_CUDA(cudaEventRecord(stop));
    CHECK_CUDA(cudaEventSynchronize(stop));
    float ms = 0;
    CHECK_CUDA(cudaEventElapsedTime(&ms, start, stop));
    if (i >= options.warmup) times.push_back(ms);
  }
  std::sort(times.begin(), times.end());
  const size_t n = times.size();
  const double ms = times[n / 2], spread = (times[n - 1 - n / 10] - times[n / 10]) / ms;
  unsigned long long rows = 0;
  CHECK_CUDA(cudaMemcpy(&rows, repeated, sizeof(rows), cudaMemcpyDeviceToHost));
  const double launches = options.warmup + options.repeats;
  std::printf(
      "{\"grid\": %d, \"batch\": %d, \"type\": \"%s\", \"kernel\": \"%s\", \"far\": %d, \"ms\": "
      "%.4f, \"spread\": %.3f, "
      "\"tflops\": %.0f, \"repeated_rows\": %.4f}\n",
      options.grid, options.batch, options.type == DType::kBf16 ? "bf16" : "fp16",
      options.kernel_name.c_str(), options.far, ms, spread,
      4e-9 * options.batch * kModel * tokens * tokens / ms,
      rows / (launches * options.batch * kHeads * tokens));
  return 0;
}
