#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "kernels/window_attention.h"
#include "tests/kernels/attention_test_util.h"

namespace deepencoder::kernels {
namespace {

constexpr int kSide = 14;
constexpr int kHeads = 12;
constexpr int kWidth = 768;

struct Inputs {
  DType type;
  int batch;
  int grid;
  std::vector<float> qkv, qkv_bias, rel_h, rel_w;

  Inputs(DType t, int b, int g, uint32_t seed)
      : type(t),
        batch(b),
        grid(g),
        qkv(RandomValues(t, size_t{1} * b * g * g * 3 * kWidth, 1, seed)),
        qkv_bias(RandomValues(t, 3 * kWidth, 1, seed + 1)),
        rel_h(RandomValues(t, 27 * 64, 0.2, seed + 2)),
        rel_w(RandomValues(t, 27 * 64, 0.2, seed + 3)) {}

  int64_t Rows() const { return int64_t{batch} * grid * grid * kHeads; }
};

// Mistakes that the tests must be able to see.
enum class Mistake {
  kNone,
  kSwappedTables,
  kFlippedOffset,
  kScaledBias,
  kMaskedPadding,
  kNoKeyBias,
  kNoValueBias
};

// Row `index` of out as [batch * grid * grid][12][64].
ReferenceRow Reference(const Inputs& in, int64_t index, Mistake mistake = Mistake::kNone) {
  static const float kZeros[64] = {};
  const int head = static_cast<int>(index % kHeads);
  const int64_t token = index / kHeads;
  const int x = static_cast<int>(token % in.grid);
  const int y = static_cast<int>(token / in.grid % in.grid);
  const int64_t image = token / (in.grid * in.grid);
  const float* q = &in.qkv[token * 3 * kWidth + head * 64];
  const int top = y / kSide * kSide;
  const int left = x / kSide * kSide;
  std::vector<ScoredKey> keys;
  for (int key_y = top; key_y < top + kSide; ++key_y) {
    for (int key_x = left; key_x < left + kSide; ++key_x) {
      const bool padded = key_y >= in.grid || key_x >= in.grid;
      if (padded && mistake == Mistake::kMaskedPadding) continue;
      const int64_t key_token = (image * in.grid + key_y) * in.grid + key_x;
      const float* row = padded ? in.qkv_bias.data() : &in.qkv[key_token * 3 * kWidth];
      const float* k = row + kWidth + head * 64;
      const float* v = row + 2 * kWidth + head * 64;
      if (padded && mistake == Mistake::kNoKeyBias) k = kZeros;
      if (padded && mistake == Mistake::kNoValueBias) v = kZeros;
      int dy = y - key_y;
      int dx = x - key_x;
      if (mistake == Mistake::kSwappedTables) std::swap(dy, dx);
      if (mistake == Mistake::kFlippedOffset) dy = -dy, dx = -dx;
      const float* h = &in.rel_h[(dy + kSide - 1) * 64];
      const float* w = &in.rel_w[(dx + kSide - 1) * 64];
      const double bias_scale = mistake == Mistake::kScaledBias ? 0.125 : 1;
      ScoredKey key = {0, 0, v};
      for (int c = 0; c < 64; ++c) {
        const double product = double{q[c]} * k[c] / 8;
        const double from_h = bias_scale * q[c] * h[c];
        const double from_w = bias_scale * q[c] * w[c];
        key.score += product + from_h + from_w;
        key.magnitude += std::abs(product) + std::abs(from_h) + std::abs(from_w);
      }
      keys.push_back(key);
    }
  }
  return Attend(in.type, keys);
}

class Device {
 public:
  explicit Device(const Inputs& in)
      : in_(in),
        qkv_(in.qkv.size()),
        qkv_bias_(in.qkv_bias.size()),
        rel_h_(in.rel_h.size()),
        rel_w_(in.rel_w.size()),
        out_(in.Rows() * 64) {}

  void Upload(const Inputs& in) {
    ASSERT_CUDA(qkv_.Set(in.type, in.qkv));
    ASSERT_CUDA(qkv_bias_.Set(in.type, in.qkv_bias));
    ASSERT_CUDA(rel_h_.Set(in.type, in.rel_h));
    ASSERT_CUDA(rel_w_.Set(in.type, in.rel_w));
    ASSERT_CUDA(out_.Poison());
    // Copies and fills may still be under way, and a non-blocking stream does not wait for them.
    ASSERT_CUDA(cudaDeviceSynchronize());
  }
  WindowAttentionArgs Args() const {
    return {in_.type,        in_.batch,    in_.grid,     qkv_.get(),
            qkv_bias_.get(), rel_h_.get(), rel_w_.get(), out_.get()};
  }
  void Run(std::vector<float>& out) {
    Upload(in_);
    ASSERT_OK(LaunchWindowAttention(Args(), nullptr));
    ASSERT_CUDA(cudaDeviceSynchronize());
    ASSERT_CUDA(out_.Get(in_.type, out));
  }
  DeviceArray& out() { return out_; }

 private:
  const Inputs& in_;
  DeviceArray qkv_, qkv_bias_, rel_h_, rel_w_, out_;
};

// Compares every row of a small result; of a large one the first, the last and some at random.
Comparison Compare(const Inputs& in, const std::vector<float>& out,
                   Mistake mistake = Mistake::kNone) {
  constexpr int64_t kMostRows = 6000;
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

class WindowAttention : public ::testing::TestWithParam<std::tuple<DType, int, int>> {};

TEST_P(WindowAttention, MatchesReference) {
  REQUIRE_GPU();
  const auto [type, grid, batch] = GetParam();
  const Inputs in(type, batch, grid, 1000 * grid + batch);
  std::vector<float> out;
  ASSERT_NO_FATAL_FAILURE(Device(in).Run(out));
  EXPECT_EQ(CountNotFinite(out), 0) << "elements not written";
  Compare(in, out).Check("grid " + std::to_string(grid));
}

std::string ParamName(const ::testing::TestParamInfo<std::tuple<DType, int, int>>& info) {
  return std::string(std::get<0>(info.param) == DType::kBf16 ? "Bf16" : "Fp16") + "Grid" +
         std::to_string(std::get<1>(info.param)) + "Batch" +
         std::to_string(std::get<2>(info.param));
}

// 1 to 43: windows of one token, of one row, whole ones only, and every width of the last window.
INSTANTIATE_TEST_SUITE_P(Small, WindowAttention,
                         ::testing::Combine(::testing::Values(DType::kBf16, DType::kFp16),
                                            ::testing::Values(1, 2, 5, 13, 14, 15, 28, 31, 43),
                                            ::testing::Values(1, 2)),
                         ParamName);
INSTANTIATE_TEST_SUITE_P(Grids, WindowAttention,
                         ::testing::Combine(::testing::Values(DType::kBf16, DType::kFp16),
                                            ::testing::Values(32, 40, 48, 64, 80),
                                            ::testing::Values(1, 2, 9)),
                         ParamName);

// With other inputs than a random test's the bounds could hide one of these: here each is far
// outside.
TEST(WindowAttentionMistakes, AreSeen) {
  REQUIRE_GPU();
  for (const DType type : {DType::kBf16, DType::kFp16}) {
    const Inputs in(type, 1, 19, 5);
    std::vector<float> out;
    ASSERT_NO_FATAL_FAILURE(Device(in).Run(out));
    Compare(in, out).Check("as specified");
    for (const Mistake mistake :
         {Mistake::kSwappedTables, Mistake::kFlippedOffset, Mistake::kScaledBias,
          Mistake::kMaskedPadding, Mistake::kNoKeyBias, Mistake::kNoValueBias}) {
      EXPECT_GT(Compare(in, out, mistake).RelativeError(), 10 * UnitRoundoff(type))
          << "mistake " << static_cast<int>(mistake);
    }
  }
}

// Scores of some hundreds, where weights fall to zero and a softmax without maximum would overflow.
TEST(WindowAttentionRange, WideScores) {
  REQUIRE_GPU();
  for (const DType type : {DType::kBf16, DType::kFp16}) {
    Inputs in(type, 1, 17, 11);
    in.qkv = RandomValues(type, in.qkv.size(), 6, 12);
    in.qkv_bias = RandomValues(type, in.qkv_bias.size(), 6, 13);
    std::vector<float> out;
    ASSERT_NO_FATAL_FAILURE(Device(in).Run(out));
    EXPECT_EQ(CountNotFinite(out), 0);
    Compare(in, out).Check("wide scores");
  }
}

TEST(WindowAttentionGraph, ReplaysOnChangedInputs) {
  REQUIRE_GPU();
  const DType type = DType::kBf16;
  const Inputs first(type, 2, 20, 21);
  const Inputs second(type, 2, 20, 22);
  Device device(first);
  cudaStream_t stream;
  ASSERT_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  ASSERT_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  ASSERT_OK(LaunchWindowAttention(device.Args(), stream));
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

// Refused before any CUDA call, so these need no GPU and the pointers point nowhere.
TEST(WindowAttentionArguments, AreChecked) {
  void* const aligned = reinterpret_cast<void*>(0x1000);
  void* const misaligned = reinterpret_cast<void*>(0x1008);
  const WindowAttentionArgs good = {DType::kBf16, 1,       64,      aligned,
                                    aligned,      aligned, aligned, aligned};
  const auto message = [](const WindowAttentionArgs& args) {
    const Status status = LaunchWindowAttention(args, nullptr);
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    return status.message();
  };
  const auto expect = [&](const char* name, auto change) {
    WindowAttentionArgs args = good;
    change(args);
    EXPECT_NE(message(args).find(std::string("window attention: ") + name), std::string::npos)
        << message(args);
  };
  using Args = WindowAttentionArgs;
  expect("type", [](Args& a) { a.type = DType::kFp32; });
  expect("grid", [](Args& a) { a.grid = 0; });
  expect("grid", [](Args& a) { a.grid = -14; });
  expect("grid", [](Args& a) { a.grid = 4097; });
  expect("batch", [](Args& a) { a.batch = 0; });
  expect("batch", [](Args& a) { a.batch = -1; });
  expect("batch", [](Args& a) { a.batch = 2147483647 / (25 * 12) + 1; });
  for (void* const bad : {static_cast<void*>(nullptr), misaligned}) {
    expect("qkv ", [&](Args& a) { a.qkv = bad; });
    expect("qkv_bias", [&](Args& a) { a.qkv_bias = bad; });
    expect("rel_h", [&](Args& a) { a.rel_h = bad; });
    expect("rel_w", [&](Args& a) { a.rel_w = bad; });
    expect("out", [&](Args& a) { a.out = bad; });
  }
}

}  // namespace
}  // namespace deepencoder::kernels
