#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "kernels/clip_attention.h"
#include "tests/kernels/attention_test_util.h"

namespace deepencoder::kernels {
namespace {

constexpr int kHeads = 16;
constexpr int kWidth = 1024;

struct Inputs {
  DType type;
  int batch;
  int tokens;
  int64_t stride;
  std::vector<float> qkv;

  Inputs(DType t, int b, int n, int64_t row, double deviation, uint32_t seed)
      : type(t),
        batch(b),
        tokens(n),
        stride(row),
        qkv(RandomValues(t, b * n * row, deviation, seed)) {
    // What lies between rows must not be read: NaN shows it.
    for (int64_t token = 0; token < int64_t{b} * n; ++token) {
      std::fill(qkv.begin() + token * row + 3 * kWidth, qkv.begin() + (token + 1) * row, NAN);
    }
  }
  int64_t Rows() const { return int64_t{batch} * tokens * kHeads; }
};

enum class Mistake { kNone, kLastKeyMissing, kUnscaled };

// Row `index` of out as [batch * tokens][16][64].
ReferenceRow Reference(const Inputs& in, int64_t index, Mistake mistake = Mistake::kNone) {
  const int head = static_cast<int>(index % kHeads);
  const int64_t token = index / kHeads;
  const int64_t image = token / in.tokens;
  const float* q = &in.qkv[token * in.stride + head * 64];
  std::vector<ScoredKey> keys;
  for (int j = 0; j < in.tokens - (mistake == Mistake::kLastKeyMissing); ++j) {
    const float* k = &in.qkv[(image * in.tokens + j) * in.stride + kWidth + head * 64];
    ScoredKey key = {0, 0, k + kWidth};
    for (int c = 0; c < 64; ++c) {
      const double product = double{q[c]} * k[c] / (mistake == Mistake::kUnscaled ? 1 : 8);
      key.score += product;
      key.magnitude += std::abs(product);
    }
    keys.push_back(key);
  }
  return Attend(in.type, keys);
}

class Device {
 public:
  explicit Device(const Inputs& in) : in_(in), qkv_(in.qkv.size()), out_(in.Rows() * 64) {}

  void Upload(const Inputs& in) {
    ASSERT_CUDA(qkv_.Set(in.type, in.qkv));
    ASSERT_CUDA(out_.Poison());
    // Copies and fills may still be under way, and a non-blocking stream does not wait for them.
    ASSERT_CUDA(cudaDeviceSynchronize());
  }
  ClipAttentionArgs Args() const {
    return {in_.type, in_.batch, in_.tokens, qkv_.get(), in_.stride, out_.get()};
  }
  void Run(std::vector<float>& out) {
    Upload(in_);
    ASSERT_OK(LaunchClipAttention(Args(), nullptr));
    ASSERT_CUDA(cudaDeviceSynchronize());
    ASSERT_CUDA(out_.Get(in_.type, out));
  }
  DeviceArray& out() { return out_; }

 private:
  const Inputs& in_;
  DeviceArray qkv_, out_;
};

// Compares every row of a small result; of a large one the first, the last and some at random.
Comparison Compare(const Inputs& in, const std::vector<float>& out,
                   Mistake mistake = Mistake::kNone) {
  constexpr int64_t kMostRows = 5000;
  Comparison comparison(in.type);
  const int64_t rows = in.Rows();
  std::mt19937_64 engine(7);
  std::uniform_int_distribution<int64_t> any(0, rows - 1);
  for (int64_t i = 0; i < std::min(rows, kMostRows); ++i) {
    int64_t row = i;
    if (rows > kMostRows && i >= 100) row = i < 200 ? rows - 1 - (i - 100) : any(engine);
    comparison.Add(&out[row * 64], Reference(in, row, mistake));
  }
  return comparison;
}

class ClipAttention : public ::testing::TestWithParam<std::tuple<DType, int, int>> {};

TEST_P(ClipAttention, MatchesReference) {
  REQUIRE_GPU();
  const auto [type, tokens, batch] = GetParam();
  const Inputs in(type, batch, tokens, 3 * kWidth, 1.5, 1000 * tokens + batch);
  std::vector<float> out;
  ASSERT_NO_FATAL_FAILURE(Device(in).Run(out));
  EXPECT_EQ(CountNotFinite(out), 0) << "elements not written";
  Compare(in, out).Check(std::to_string(tokens) + " tokens");
}

std::string ParamName(const ::testing::TestParamInfo<std::tuple<DType, int, int>>& info) {
  return std::string(std::get<0>(info.param) == DType::kBf16 ? "Bf16" : "Fp16") + "Tokens" +
         std::to_string(std::get<1>(info.param)) + "Batch" +
         std::to_string(std::get<2>(info.param));
}

// Batches 1, 2, 9 and 33: with and without the keys split among warps. Small: around each tile's
// edge.
INSTANTIATE_TEST_SUITE_P(Small, ClipAttention,
                         ::testing::Combine(::testing::Values(DType::kBf16, DType::kFp16),
                                            ::testing::Values(1, 2, 15, 16, 17, 31, 33, 63, 64, 127,
                                                              128, 129),
                                            ::testing::Values(1, 33)),
                         ParamName);
INSTANTIATE_TEST_SUITE_P(Sides, ClipAttention,
                         ::testing::Combine(::testing::Values(DType::kBf16, DType::kFp16),
                                            ::testing::Values(65, 101, 257, 401),
                                            ::testing::Values(1, 2, 9, 33)),
                         ParamName);
INSTANTIATE_TEST_SUITE_P(Long, ClipAttention,
                         ::testing::Combine(::testing::Values(DType::kBf16, DType::kFp16),
                                            ::testing::Values(1000, 1999), ::testing::Values(1, 3)),
                         ParamName);

TEST(ClipAttentionMistakes, AreSeen) {
  REQUIRE_GPU();
  for (const DType type : {DType::kBf16, DType::kFp16}) {
    const Inputs in(type, 1, 65, 3 * kWidth, 1.5, 5);
    std::vector<float> out;
    ASSERT_NO_FATAL_FAILURE(Device(in).Run(out));
    Compare(in, out).Check("as specified");
    for (const Mistake mistake : {Mistake::kLastKeyMissing, Mistake::kUnscaled}) {
      EXPECT_GT(Compare(in, out, mistake).RelativeError(), 10 * UnitRoundoff(type))
          << "mistake " << static_cast<int>(mistake);
    }
  }
}

// Rows of a wider matrix; scores of some hundreds.
TEST(ClipAttentionRange, StrideAndWideScores) {
  REQUIRE_GPU();
  for (const DType type : {DType::kBf16, DType::kFp16}) {
    for (const int batch : {1, 40}) {
      const Inputs in(type, batch, 101, 3 * kWidth + 24, 6, 31);
      std::vector<float> out;
      ASSERT_NO_FATAL_FAILURE(Device(in).Run(out));
      EXPECT_EQ(CountNotFinite(out), 0);
      Compare(in, out).Check("batch " + std::to_string(batch));
    }
  }
}

TEST(ClipAttentionGraph, ReplaysOnChangedInputs) {
  REQUIRE_GPU();
  const DType type = DType::kFp16;
  for (const int batch : {1, 20}) {
    const Inputs first(type, batch, 65, 3 * kWidth, 1.5, 21);
    const Inputs second(type, batch, 65, 3 * kWidth, 1.5, 22);
    Device device(first);
    cudaStream_t stream;
    ASSERT_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    ASSERT_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    ASSERT_OK(LaunchClipAttention(device.Args(), stream));
    ASSERT_CUDA(cudaStreamEndCapture(stream, &graph));
    ASSERT_CUDA(cudaGraphInstantiate(&exec, graph, 0));
    for (const Inputs* in : {&first, &second, &first}) {
      ASSERT_NO_FATAL_FAILURE(device.Upload(*in));
      ASSERT_CUDA(cudaGraphLaunch(exec, stream));
      ASSERT_CUDA(cudaStreamSynchronize(stream));
      std::vector<float> replayed;
      ASSERT_CUDA(device.out().Get(type, replayed));
      std::vector<float> direct;
      ASSERT_NO_FATAL_FAILURE(Device(*in).Run(direct));
      EXPECT_EQ(replayed, direct);
    }
    ASSERT_CUDA(cudaGraphExecDestroy(exec));
    ASSERT_CUDA(cudaGraphDestroy(graph));
    ASSERT_CUDA(cudaStreamDestroy(stream));
  }
}

// Refused before any CUDA call, so these need no GPU and the pointers point nowhere.
TEST(ClipAttentionArguments, AreChecked) {
  void* const aligned = reinterpret_cast<void*>(0x1000);
  void* const misaligned = reinterpret_cast<void*>(0x1008);
  const ClipAttentionArgs good = {DType::kBf16, 1, 257, aligned, 3 * kWidth, aligned};
  const auto message = [](const ClipAttentionArgs& args) {
    const Status status = LaunchClipAttention(args, nullptr);
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    return status.message();
  };
  const auto expect = [&](const char* name, auto change) {
    ClipAttentionArgs args = good;
    change(args);
    EXPECT_NE(message(args).find(std::string("CLIP attention: ") + name), std::string::npos)
        << message(args);
  };
  using Args = ClipAttentionArgs;
  expect("type", [](Args& a) { a.type = DType::kFp32; });
  expect("tokens", [](Args& a) { a.tokens = 0; });
  expect("tokens", [](Args& a) { a.tokens = (1 << 20) + 1; });
  expect("batch", [](Args& a) { a.batch = 0; });
  expect("batch", [](Args& a) { a.batch = 2147483647 / (17 * 16) + 1; });
  expect("qkv_stride", [](Args& a) { a.qkv_stride = 3 * kWidth - 8; });
  expect("qkv_stride", [](Args& a) { a.qkv_stride = 3 * kWidth + 4; });
  expect("qkv_stride", [](Args& a) { a.qkv_stride = int64_t{1} << 31; });
  for (void* const bad : {static_cast<void*>(nullptr), misaligned}) {
    expect("qkv ", [&](Args& a) { a.qkv = bad; });
    expect("out", [&](Args& a) { a.out = bad; });
  }
}

}  // namespace
}  // namespace deepencoder::kernels
