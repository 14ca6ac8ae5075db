// Times window and CLIP attention at the sizes the encoder runs them. One JSON object a line:
//   median, least and most microseconds of one launch over the samples, each a CUDA graph of
//   kLaunches launches;
//   TFLOP/s of the products for real queries with all keys, bias terms included;
//   GB/s of qkv read once and out written once.
// Inputs are random. At batch 1 they fit in the L2 cache, as after the qkv product of the encoder.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "kernels/clip_attention.h"
#include "kernels/window_attention.h"

namespace deepencoder::kernels {
namespace {

constexpr int kLaunches = 10;
constexpr int kWarmUps = 3;
constexpr int kSamples = 31;

void Check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
  std::exit(1);
}
void Check(const Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.message().c_str());
  std::exit(1);
}

// Uniform in [-2, 2).
template <typename T>
__global__ void Fill(T* values, int64_t count, uint32_t seed) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= count) return;
  uint32_t x = static_cast<uint32_t>(i) * 747796405u + seed;
  x = ((x >> (x >> 28 & 15)) ^ x) * 277803737u;
  x ^= x >> 22;
  values[i] = static_cast<T>(static_cast<float>(x >> 8) * 0x1p-22f - 2.0f);
}

class Values {
 public:
  Values(DType type, int64_t count, uint32_t seed) {
    Check(cudaMalloc(&data_, count * 2), "cudaMalloc");
    const auto blocks = static_cast<unsigned>((count + 255) / 256);
    if (type == DType::kBf16) {
      Fill<<<blocks, 256>>>(static_cast<__nv_bfloat16*>(data_), count, seed);
    } else {
      Fill<<<blocks, 256>>>(static_cast<__half*>(data_), count, seed);
    }
    Check(cudaGetLastError(), "Fill");
  }
  ~Values() { cudaFree(data_); }
  Values(const Values&) = delete;
  Values& operator=(const Values&) = delete;
  void* get() const { return data_; }

 private:
  void* data_ = nullptr;
};

struct Times {
  double median, least, most;  // microseconds a launch
};

Times Measure(const std::function<Status(cudaStream_t)>& launch) {
  cudaStream_t stream;
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  cudaEvent_t start;
  cudaEvent_t stop;
  Check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
  Check(cudaEventCreate(&start), "cudaEventCreate");
  Check(cudaEventCreate(&stop), "cudaEventCreate");
  Check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  Check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), "cudaStreamBeginCapture");
  for (int i = 0; i < kLaunches; ++i) Check(launch(stream));
  Check(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
  Check(cudaGraphInstantiate(&exec, graph, 0), "cudaGraphInstantiate");
  std::vector<double> samples;
  for (int i = -kWarmUps; i < kSamples; ++i) {
    Check(cudaEventRecord(start, stream), "cudaEventRecord");
    Check(cudaGraphLaunch(exec, stream), "cudaGraphLaunch");
    Check(cudaEventRecord(stop, stream), "cudaEventRecord");
    Check(cudaEventSynchronize(stop), "cudaEventSynchronize");
    float milliseconds = 0;
    Check(cudaEventElapsedTime(&milliseconds, start, stop), "cudaEventElapsedTime");
    if (i >= 0) samples.push_back(1000.0 * milliseconds / kLaunches);
  }
  Check(cudaGraphExecDestroy(exec), "cudaGraphExecDestroy");
  Check(cudaGraphDestroy(graph), "cudaGraphDestroy");
  Check(cudaEventDestroy(start), "cudaEventDestroy");
  Check(cudaEventDestroy(stop), "cudaEventDestroy");
  Check(cudaStreamDestroy(stream), "cudaStreamDestroy");
  std::sort(samples.begin(), samples.end());
  return {samples[kSamples / 2], samples.front(), samples.back()};
}

void Report(const char* kernel, DType type, const char* size_name, int size, int batch,
            const Times& t, double operations, double bytes) {
  std::printf(
      "{\"kernel\": \"%s\", \"type\": \"%s\", \"%s\": %d, \"batch\": %d, \"median_us\": %.2f, "
      "\"least_us\": %.2f, \"most_us\": %.2f, \"samples\": %d, \"us_per_image\": %.2f, "
      "\"tflops\": %.1f, \"gbytes_per_s\": %.0f}\n",
      kernel, type == DType::kBf16 ? "bf16" : "fp16", size_name, size, batch, t.median, t.least,
      t.most, kSamples, t.median / batch, operations / t.median * 1e-6, bytes / t.median * 1e-3);
}

void BenchWindow(DType type, int grid, int batch) {
  const int64_t tokens = int64_t{batch} * grid * grid;
  const Values qkv(type, tokens * 3 * 768, 1);
  const Values bias(type, 3 * 768, 2);
  const Values rel_h(type, 27 * 64, 3);
  const Values rel_w(type, 27 * 64, 4);
  const Values out(type, tokens * 768, 5);
  const WindowAttentionArgs args = {type,       batch,       grid,        qkv.get(),
                                    bias.get(), rel_h.get(), rel_w.get(), out.get()};
  const Times times =
      Measure([&](cudaStream_t stream) { return LaunchWindowAttention(args, stream); });
  const double operations = 768.0 * tokens * (4 * 196 + 4 * 27);
  Report("window_attention", type, "grid", grid, batch, times, operations, 2.0 * tokens * 4 * 768);
}

void BenchClip(DType type, int tokens, int batch) {
  const int64_t rows = int64_t{batch} * tokens;
  const Values qkv(type, rows * 3 * 1024, 1);
  const Values out(type, rows * 1024, 2);
  const ClipAttentionArgs args = {type, batch, tokens, qkv.get(), 3 * 1024, out.get()};
  const Times times =
      Measure([&](cudaStream_t stream) { return LaunchClipAttention(args, stream); });
  Report("clip_attention", type, "tokens", tokens, batch, times, 4.0 * 1024 * rows * tokens,
         2.0 * rows * 4 * 1024);
}

}  // namespace
}  // namespace deepencoder::kernels

int main() {
  using deepencoder::DType;
  namespace kernels = deepencoder::kernels;
  for (const int grid : {32, 40, 48, 64, 80}) {
    for (const int batch : {1, 8}) kernels::BenchWindow(DType::kBf16, grid, batch);
  }
  kernels::BenchWindow(DType::kBf16, 40, 32);
  kernels::BenchWindow(DType::kFp16, 64, 8);
  for (const int tokens : {65, 101, 257, 401}) {
    for (const int batch : {1, 2, 4, 8, 32}) kernels::BenchClip(DType::kBf16, tokens, batch);
  }
  kernels::BenchClip(DType::kFp16, 257, 32);
  return 0;
}
