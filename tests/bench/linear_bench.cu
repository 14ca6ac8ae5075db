// Every dense layer of the encoder at 1024 x 1024: our kernel's tilings against the best cuBLASLt algorithm
// (with the activation as a second pass, as the model needs it) and, as a yardstick for the layers with
// GELU, cuBLASLt's own epilogue, which is only the tanh approximation.
//
//   linear_bench [--json=FILE] [--batches=1,8,32] [--rounds=N] [--only=NAME]
//
// All sides run from CUDA graphs on the same random data, in turns, after a warm-up; times are medians of
// the rounds. Needs a GPU; our side is empty where it is no Hopper.
#include <cublasLt.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "kernels/gemm_sm90.h"
#include "kernels/linear.h"
#include "kernels/linear_measure.h"
#include "kernels/linear_operands.h"
#include "kernels/linear_product.h"

namespace deepencoder::kernels {
namespace {

void Check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
  std::exit(1);
}
void Check(const Status& status, const char* what) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s: %s\n", what, status.message().c_str());
  std::exit(1);
}
void Check(cublasStatus_t status, const char* what) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  std::fprintf(stderr, "%s: %s\n", what, cublasLtGetStatusString(status));
  std::exit(1);
}

struct Layer {
  const char* name;
  int count;  // of such layers in one encode
  LinearShape shape;
};

std::vector<Layer> Layers(int batch) {
  const int sam = batch * 4096;
  const int clip = batch * 257;
  const int tokens = batch * 256;
  const std::vector<Layer> layers = {
      {"sam patch", 1, {.m = sam, .n = 768, .k = 768}},
      {"sam qkv", 12, {.m = sam, .n = 2304, .k = 768}},
      {"sam proj", 12, {.m = sam, .n = 768, .k = 768, .residual = true}},
      {"sam lin1", 12, {.m = sam, .n = 3072, .k = 768, .epilogue = Epilogue::kGelu}},
      {"sam lin2", 12, {.m = sam, .n = 768, .k = 3072, .residual = true}},
      {"sam proj fp32",
       0,
       {.y_type = DType::kFp32, .m = sam, .n = 768, .k = 768, .residual = true}},
      {"sam lin2 fp32",
       0,
       {.y_type = DType::kFp32, .m = sam, .n = 768, .k = 3072, .residual = true}},
      {"neck 1", 1, {.m = sam, .n = 256, .k = 768, .bias = false}},
      {"neck 2", 1, {.m = sam, .n = 256, .k = 2304, .bias = false}},
      {"net 2", 1, {.m = sam / 4, .n = 512, .k = 2304, .bias = false}},
      {"net 3", 1, {.m = sam / 16, .n = 1024, .k = 4608, .bias = false}},
      {"clip qkv", 24, {.m = clip, .n = 3072, .k = 1024}},
      {"clip out", 24, {.m = clip, .n = 1024, .k = 1024, .residual = true}},
      {"clip fc1", 24, {.m = clip, .n = 4096, .k = 1024, .epilogue = Epilogue::kQuickGelu}},
      {"clip fc2", 24, {.m = clip, .n = 1024, .k = 4096, .residual = true}},
      {"projector",
       1,
       {.m = tokens,
        .n = 1280,
        .k = 1024,
        .k2 = 1024,
        .group_rows = batch == 1 ? 0 : 256,
        .group_stride = batch == 1 ? 0 : 257 * 1024}},
  };
  return layers;
}

double Flops(const LinearShape& shape) { return 2.0 * shape.m * shape.n * (shape.k + shape.k2); }

using LaunchFunction = std::function<void(cudaStream_t)>;

// One side: a graph of some launches, and its times.
struct Side {
  std::string name;
  cudaGraphExec_t graph = nullptr;
  int launches = 1;
  std::vector<float> times;

  double Median() const {
    std::vector<float> sorted = times;
    std::sort(sorted.begin(), sorted.end());
    return sorted[sorted.size() / 2];
  }
};

Side MakeSide(const std::string& name, double flops, cudaStream_t stream,
              const LaunchFunction& launch) {
  Side side{name};
  launch(stream);  // loads the kernels
  Check(cudaStreamSynchronize(stream), "first launch");
  // About 0.3 ms a graph at 500 TFLOP/s, so that its own start does not count.
  side.launches = std::clamp(static_cast<int>(1.5e11 / flops), 1, 50);
  cudaGraph_t graph;
  Check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capture");
  for (int i = 0; i < side.launches; ++i) launch(stream);
  Check(cudaStreamEndCapture(stream, &graph), "capture");
  Check(cudaGraphInstantiate(&side.graph, graph, 0), "cudaGraphInstantiate");
  Check(cudaGraphDestroy(graph), "cudaGraphDestroy");
  return side;
}

void RunRounds(std::vector<Side>& sides, int rounds, cudaStream_t stream) {
  cudaEvent_t begin, end;
  Check(cudaEventCreate(&begin), "event");
  Check(cudaEventCreate(&end), "event");
  for (int round = -1; round < rounds; ++round) {  // the first warms up
    for (Side& side : sides) {
      Check(cudaEventRecord(begin, stream), "event");
      Check(cudaGraphLaunch(side.graph, stream), "graph");
      Check(cudaEventRecord(end, stream), "event");
      Check(cudaEventSynchronize(end), "run");
      float milliseconds = 0;
      Check(cudaEventElapsedTime(&milliseconds, begin, end), "event");
      if (round >= 0) side.times.push_back(milliseconds / static_cast<float>(side.launches));
    }
  }
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
}

// cuBLASLt with its own bias and tanh-GELU epilogue: the first of the heuristics' results that is fastest in
// one short run. Returns a launch that is wrong for the model, for its time alone.
LaunchFunction TanhGelu(cublasLtHandle_t handle, const LinearShape& shape,
                        const LinearBuffers& buffers, void* workspace, size_t workspace_bytes) {
  cublasLtMatmulDesc_t operation;
  cublasLtMatrixLayout_t weight, x, y;
  cublasLtMatmulPreference_t preference;
  Check(cublasLtMatmulDescCreate(&operation, CUBLAS_COMPUTE_32F, CUDA_R_32F), "desc");
  const cublasOperation_t transposed = CUBLAS_OP_T;
  const cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_GELU_BIAS;
  Check(cublasLtMatmulDescSetAttribute(operation, CUBLASLT_MATMUL_DESC_TRANSA, &transposed,
                                       sizeof(transposed)),
        "transposed");
  Check(cublasLtMatmulDescSetAttribute(operation, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue,
                                       sizeof(epilogue)),
        "epilogue");
  Check(cublasLtMatmulDescSetAttribute(operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &buffers.bias,
                                       sizeof(buffers.bias)),
        "bias");
  Check(cublasLtMatrixLayoutCreate(&weight, CUDA_R_16BF, shape.k, shape.n, shape.k), "layout");
  Check(cublasLtMatrixLayoutCreate(&x, CUDA_R_16BF, shape.k, shape.m, shape.k), "layout");
  Check(cublasLtMatrixLayoutCreate(&y, CUDA_R_16BF, shape.n, shape.m, shape.n), "layout");
  Check(cublasLtMatmulPreferenceCreate(&preference), "preference");
  Check(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                             &workspace_bytes, sizeof(workspace_bytes)),
        "preference");
  std::array<cublasLtMatmulHeuristicResult_t, 24> results{};
  int found = 0;
  Check(cublasLtMatmulAlgoGetHeuristic(handle, operation, weight, x, y, y, preference,
                                       static_cast<int>(results.size()), results.data(), &found),
        "heuristics");
  cublasLtMatmulPreferenceDestroy(preference);
  const auto launch = [=](const cublasLtMatmulAlgo_t& algorithm, cudaStream_t stream) {
    const float one = 1, zero = 0;
    Check(
        cublasLtMatmul(handle, operation, &one, buffers.weight, weight, buffers.x, x, &zero,
                       buffers.y, y, buffers.y, y, &algorithm, workspace, workspace_bytes, stream),
        "cublasLtMatmul");
  };
  cudaEvent_t begin, end;
  Check(cudaEventCreate(&begin), "event");
  Check(cudaEventCreate(&end), "event");
  float least = INFINITY;
  cublasLtMatmulAlgo_t best = results[0].algo;
  for (int i = 0; i < found; ++i) {
    launch(results[i].algo, nullptr);
    Check(cudaEventRecord(begin), "event");
    for (int run = 0; run < 5; ++run) launch(results[i].algo, nullptr);
    Check(cudaEventRecord(end), "event");
    Check(cudaEventSynchronize(end), "run");
    float milliseconds = 0;
    Check(cudaEventElapsedTime(&milliseconds, begin, end), "event");
    if (milliseconds < least) least = milliseconds, best = results[i].algo;
  }
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  return [=](cudaStream_t stream) { launch(best, stream); };
}

struct Options {
  const char* json = nullptr;
  const char* only = nullptr;
  std::vector<int> batches = {1, 8, 32};
  int rounds = 15;
};

class Bench {
 public:
  explicit Bench(const Options& options) : options_(options) {
    LinearContext::Options context_options;
    context_options.use_own = false;
    Check(LinearContext::Create(context_options, &context_), "LinearContext");
    Check(cublasLtCreate(&handle_), "cublasLtCreate");
    Check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "stream");
    if (options.json != nullptr) json_ = std::fopen(options.json, "w");
    std::printf("%-15s %6s %7s %5s %5s | %8s %8s %8s | %6s %6s | %5s  %s\n", "layer", "batch", "m",
                "n", "k", "ours us", "cublas", "tanh", "ours", "cublas", "ratio", "our tiling");
  }

  void Run(int batch) {
    double ours = 0, cublas = 0, best = 0, flops = 0;
    for (const Layer& layer : Layers(batch)) {
      if (options_.only != nullptr && std::strcmp(options_.only, layer.name) != 0) continue;
      double layer_ours = 0, layer_cublas = 0;
      RunLayer(layer, batch, &layer_ours, &layer_cublas);
      ours += layer.count * layer_ours;
      cublas += layer.count * layer_cublas;
      best += layer.count * std::min(layer_ours, layer_cublas);
      flops += layer.count * Flops(layer.shape);
    }
    std::printf(
        "batch %d, all layers of one image: ours %.3f ms, cublas %.3f, best of each %.3f"
        " (%.0f TFLOP/s)\n",
        batch, ours / batch, cublas / batch, best / batch, flops / best / 1e9);
  }

 private:
  void RunLayer(const Layer& layer, int batch, double* ours, double* cublas) {
    Linear linear;
    Check(Linear::Create(*context_, layer.shape, &linear), layer.name);
    context_->ReleaseScratch();
    const LinearShape& shape = linear.shape();
    LinearProducts products;
    Check(AddSm90Products(shape, &products), "our kernel");
    MeasureScratch scratch, workspace_scratch;
    Check(scratch.Reserve(LinearOperands::Bytes(shape, products)), "operands");
    const size_t workspace_bytes = size_t{32} << 20;
    Check(workspace_scratch.Reserve(workspace_bytes), "workspace");
    void* const workspace = workspace_scratch.data();
    LinearOperands operands(shape, products, scratch.data());
    Check(operands.Fill(OperandData::kRandom, stream_), "operands");
    const LinearBuffers& buffers = operands.buffers();

    std::vector<Side> sides;
    const double flops = Flops(shape);
    sides.push_back(MakeSide(linear.algorithm(), flops, stream_, [&](cudaStream_t stream) {
      Check(linear.Launch(buffers, workspace, workspace_bytes, stream), "cublas");
    }));
    for (const auto& product : products) {
      sides.push_back(MakeSide(product->name(), flops, stream_, [&](cudaStream_t stream) {
        Check(product->Launch(buffers, workspace, workspace_bytes, stream), "our kernel");
      }));
    }
    const size_t own_end = sides.size();
    if (shape.epilogue != Epilogue::kNone) {
      sides.push_back(MakeSide("cublaslt tanh-GELU", flops, stream_,
                               TanhGelu(handle_, shape, buffers, workspace, workspace_bytes)));
    }
    RunRounds(sides, options_.rounds, stream_);

    *cublas = sides[0].Median();
    size_t fastest = 0;
    for (size_t i = 1; i < own_end; ++i) {
      if (fastest == 0 || sides[i].Median() < sides[fastest].Median()) fastest = i;
    }
    *ours = fastest == 0 ? NAN : sides[fastest].Median();
    const double tanh = own_end < sides.size() ? sides[own_end].Median() : NAN;
    std::printf("%-15s %6d %7d %5d %5d | %8.1f %8.1f %8.1f | %6.0f %6.0f | %5.2f  %s\n", layer.name,
                batch, shape.m, shape.n, shape.k + shape.k2, *ours * 1e3, *cublas * 1e3, tanh * 1e3,
                flops / *ours / 1e9, flops / *cublas / 1e9, *cublas / *ours,
                fastest == 0 ? "" : sides[fastest].name.c_str());
    std::fflush(stdout);
    if (json_ != nullptr) WriteJson(layer, batch, shape, sides, fastest);
    for (const Side& side : sides) cudaGraphExecDestroy(side.graph);
  }

  void WriteJson(const Layer& layer, int batch, const LinearShape& shape,
                 const std::vector<Side>& sides, size_t fastest) {
    std::fprintf(json_,
                 "{\"name\": \"linear %s batch %d\", \"m\": %d, \"n\": %d, \"k\": %d, "
                 "\"unit\": \"ms\", \"ours\": %.5f, \"peer\": %.5f, \"peer_name\": \"%s\", "
                 "\"higher_is_better\": false, \"rounds\": %d, \"all\": {",
                 layer.name, batch, shape.m, shape.n, shape.k + shape.k2, sides[fastest].Median(),
                 sides[0].Median(), sides[0].name.c_str(), options_.rounds);
    for (size_t i = 0; i < sides.size(); ++i) {
      std::fprintf(json_, "%s\"%s\": [%.5f, %.5f, %.5f]", i == 0 ? "" : ", ", sides[i].name.c_str(),
                   *std::min_element(sides[i].times.begin(), sides[i].times.end()),
                   sides[i].Median(),
                   *std::max_element(sides[i].times.begin(), sides[i].times.end()));
    }
    std::fprintf(json_, "}}\n");
    std::fflush(json_);
  }

  Options options_;
  std::unique_ptr<LinearContext> context_;
  cublasLtHandle_t handle_ = nullptr;
  cudaStream_t stream_ = nullptr;
  std::FILE* json_ = nullptr;
};

int Main(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const char* const value = std::strchr(argv[i], '=');
    if (std::strncmp(argv[i], "--json=", 7) == 0) {
      options.json = value + 1;
    } else if (std::strncmp(argv[i], "--only=", 7) == 0) {
      options.only = value + 1;
    } else if (std::strncmp(argv[i], "--rounds=", 9) == 0) {
      options.rounds = std::max(1, std::atoi(value + 1));
    } else if (std::strncmp(argv[i], "--batches=", 10) == 0) {
      options.batches.clear();
      std::stringstream list(value + 1);
      for (std::string item; std::getline(list, item, ',');) {
        options.batches.push_back(std::max(1, std::atoi(item.c_str())));
      }
    } else {
      std::fprintf(stderr, "unknown argument %s\n", argv[i]);
      return 1;
    }
  }
  Bench bench(options);
  for (const int batch : options.batches) bench.Run(batch);
  return 0;
}

}  // namespace
}  // namespace deepencoder::kernels

int main(int argc, char** argv) { return deepencoder::kernels::Main(argc, argv); }
