#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "encoder/base/dtype.h"
#include "kernels/global_attention.h"
#include "tests/kernels/attention_reference.h"
#include "tests/kernels/gpu_test.h"

namespace deepencoder::kernels::testing {
namespace {

using Kernel = GlobalAttentionKernel;

constexpr int kHopperGrids[] = {32, 40, 48, 64, 80};

float ToFloat(DType type, uint16_t bits) {
  return type == DType::kBf16 ? Bf16ToFloat(bits) : Fp16ToFloat(bits);
}
uint16_t FromFloat(DType type, float x) {
  return type == DType::kBf16 ? FloatToBf16(x) : FloatToFp16(x);
}
double UnitRoundoff(DType type) { return type == DType::kBf16 ? 0x1p-9 : 0x1p-12; }

// How the elements of q, k, v and out lie in memory.
enum class Layout {
  kFused,      // [batch][tokens][3][heads][64] and [batch][tokens][heads][64]
  kHeadMajor,  // [3][batch][heads][tokens][64] and [batch][heads][tokens][64]
  kPadded,     // fused, with gaps after each token and each image
};

struct Case {
  DType type = DType::kBf16;
  int batch = 1, heads = 2, height = 8, width = 8;
  Layout layout = Layout::kFused;
  double spread = 1;  // standard deviation of q and k
  double table_spread = 0.25;
  bool far_match =
      false;  // key j is the query half the grid away: the largest score is far from the first tile
  int tokens() const { return height * width; }
};

// Inputs on the host and on the device, with the output poisoned.
class Problem {
 public:
  Problem(const Case& c, uint64_t seed)
      : case_(c),
        qkv_strides_(Strides(3)),
        out_strides_(Strides(1)),
        part_(c.layout == Layout::kHeadMajor ? int64_t{1} * c.batch * c.heads * c.tokens() * kHead
                                             : int64_t{1} * c.heads * kHead),
        qkv_(Elements(qkv_strides_) + 2 * part_),
        rel_h_((2 * c.height - 1) * kHead),
        rel_w_((2 * c.width - 1) * kHead),
        out_(Elements(out_strides_)) {
    Fill(seed);
  }

  void Fill(uint64_t seed) {
    std::mt19937_64 random(seed);
    const std::vector<uint16_t> query = Normals(random, case_.spread), value = Normals(random, 1),
                                table = Normals(random, case_.table_spread);
    const auto draw = [&](const std::vector<uint16_t>& from) {
      return from[random() % from.size()];
    };
    std::vector<uint16_t> qkv(qkv_.size(), 0xFFFF), rel_h(rel_h_.size()), rel_w(rel_w_.size());
    const int n = case_.tokens();
    ForEachToken([&](int64_t b, int64_t h, int64_t i) {
      for (int d = 0; d < kHead; ++d) {
        const uint16_t q = draw(query), k = draw(query), v = draw(value);
        qkv[At(qkv_strides_, b, i, h) + d] = q;
        const int64_t match = (i + n / 2) % n;
        if (case_.far_match) {
          qkv[part_ + At(qkv_strides_, b, match, h) + d] = q;
        } else {
          qkv[part_ + At(qkv_strides_, b, i, h) + d] = k;
        }
        qkv[2 * part_ + At(qkv_strides_, b, i, h) + d] = v;
      }
    });
    for (uint16_t& x : rel_h) x = draw(table);
    for (uint16_t& x : rel_w) x = draw(table);
    host_qkv_ = qkv, host_rel_h_ = rel_h, host_rel_w_ = rel_w;
    qkv_.Set(qkv), rel_h_.Set(rel_h), rel_w_.Set(rel_w);
    out_.Poison();
  }

  GlobalAttentionArgs Args(Kernel kernel = Kernel::kAuto) {
    GlobalAttentionArgs args;
    args.type = case_.type, args.batch = case_.batch, args.heads = case_.heads;
    args.height = case_.height, args.width = case_.width;
    args.q = qkv_.data(), args.k = qkv_.data() + part_, args.v = qkv_.data() + 2 * part_;
    args.qkv_strides = qkv_strides_, args.out_strides = out_strides_;
    args.rel_h = rel_h_.data(), args.rel_w = rel_w_.data(), args.out = out_.data();
    args.kernel = kernel;
    return args;
  }

  HostHead Head(int b, int h) const {
    HostHead head;
    head.height = case_.height, head.width = case_.width;
    const auto rows = [&](int part) {
      std::vector<float> values;
      for (int i = 0; i < case_.tokens(); ++i)
        for (int d = 0; d < kHead; ++d)
          values.push_back(
              ToFloat(case_.type, host_qkv_[part * part_ + At(qkv_strides_, b, i, h) + d]));
      return values;
    };
    head.q = rows(0), head.k = rows(1), head.v = rows(2);
    for (const uint16_t x : host_rel_h_) head.rel_h.push_back(ToFloat(case_.type, x));
    for (const uint16_t x : host_rel_w_) head.rel_w.push_back(ToFloat(case_.type, x));
    return head;
  }

  // Every element written, gaps untouched, and about `samples` queries of each head within the
  // bounds; the normwise error in units of the type's roundoff is at most `limit`.
  void Check(double limit, int samples = 24) {
    const std::vector<uint16_t> out = out_.Get();
    std::vector<bool> mine(out.size());
    ForEachToken([&](int64_t b, int64_t h, int64_t i) {
      for (int d = 0; d < kHead; ++d) {
        const int64_t at = At(out_strides_, b, i, h) + d;
        mine[at] = true;
        ASSERT_FALSE(std::isnan(ToFloat(case_.type, out[at])))
            << "batch " << b << " head " << h << " token " << i;
      }
    });
    for (size_t i = 0; i < out.size(); ++i) {
      if (!mine[i]) ASSERT_EQ(out[i], 0xFFFF) << "wrote into a gap at " << i;
    }
    EXPECT_LE(Error(out, Mistake::kNone, samples, true), limit);
  }

  // ||out - reference|| / ||reference|| over sampled queries, in units of the type's roundoff.
  double Error(const std::vector<uint16_t>& out, Mistake mistake, int samples,
               bool check_bounds) const {
    const int n = case_.tokens(), step = std::max(1, n / samples);
    double error = 0, norm = 0;
    for (int b = 0; b < case_.batch; ++b) {
      for (int h = 0; h < case_.heads; ++h) {
        const HostHead head = Head(b, h);
        for (int i = (7 * b + 3 * h) % step; i < n; i += step) {
          const ReferenceRow row = ReferenceAttention(head, i, case_.type, mistake);
          for (int d = 0; d < kHead; ++d) {
            const double x = ToFloat(case_.type, out[At(out_strides_, b, i, h) + d]),
                         e = std::fabs(x - row.out[d]);
            error += e * e, norm += row.out[d] * row.out[d];
            if (check_bounds)
              EXPECT_LE(e, row.bound[d])
                  << "batch " << b << " head " << h << " token " << i << " at " << d;
          }
        }
      }
    }
    return std::sqrt(error / norm) / UnitRoundoff(case_.type);
  }

  std::vector<uint16_t> Out() const { return out_.Get(); }
  void PoisonOut() { out_.Poison(); }

 private:
  // To draw from: quicker than to compute each.
  std::vector<uint16_t> Normals(std::mt19937_64& random, double spread) const {
    std::normal_distribution<double> normal(0, spread);
    std::vector<uint16_t> values(1 << 14);
    for (uint16_t& x : values) x = FromFloat(case_.type, static_cast<float>(normal(random)));
    return values;
  }
  AttentionStrides Strides(int parts) const {
    const int64_t n = case_.tokens(), model = int64_t{parts} * case_.heads * kHead;
    switch (case_.layout) {
      case Layout::kFused:
        return {n * model, model, kHead};
      case Layout::kHeadMajor:
        return {n * case_.heads * kHead, kHead, n * kHead};
      case Layout::kPadded:
        return {(n + 3) * (model + 24), model + 24, kHead};
    }
    return {};
  }
  int64_t Elements(const AttentionStrides& s) const {
    return At(s, case_.batch - 1, case_.tokens() - 1, case_.heads - 1) + kHead;
  }
  static int64_t At(const AttentionStrides& s, int64_t b, int64_t i, int64_t h) {
    return b * s.batch + i * s.token + h * s.head;
  }
  void ForEachToken(const std::function<void(int64_t, int64_t, int64_t)>& f) const {
    for (int b = 0; b < case_.batch; ++b)
      for (int h = 0; h < case_.heads; ++h)
        for (int i = 0; i < case_.tokens(); ++i) f(b, h, i);
  }

  Case case_;
  AttentionStrides qkv_strides_, out_strides_;
  int64_t part_;  // from q to k and from k to v
  std::vector<uint16_t> host_qkv_, host_rel_h_, host_rel_w_;
  DeviceBuffer<uint16_t> qkv_, rel_h_, rel_w_, out_;
};

// Each rounding of the result, of p and of the scaled q adds an error of up to u / sqrt(3) in the
// mean, and the last one grows with the scores: a score q.k/8 of standard deviation spread^2 moves
// by u spread^2 / sqrt(3).
double NormLimit(const Case& c) { return 2.5 + 0.6 * c.spread * c.spread; }

std::string Describe(const Case& c, Kernel kernel) {
  return std::string(c.type == DType::kBf16 ? "bf16" : "fp16") + " batch " +
         std::to_string(c.batch) + " heads " + std::to_string(c.heads) + " grid " +
         std::to_string(c.height) + "x" + std::to_string(c.width) +
         (kernel == Kernel::kHopper     ? " hopper"
          : kernel == Kernel::kPortable ? " portable"
                                        : " auto");
}

class GlobalAttentionTest : public GpuTest {
 protected:
  static bool HasHopper() {
    int major = 0, minor = 0;
    EXPECT_CUDA(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0));
    EXPECT_CUDA(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, 0));
    return major == 9 && minor == 0;
  }

  // Launches once and checks; returns the rows repeated.
  static unsigned long long RunAndCheck(const Case& c, Kernel kernel, uint64_t seed,
                                        int samples = 24) {
    SCOPED_TRACE(Describe(c, kernel));
    Problem problem(c, seed);
    DeviceBuffer<unsigned long long> repeated(std::vector<unsigned long long>{0});
    GlobalAttentionArgs args = problem.Args(kernel);
    args.repeated_rows = repeated.data();
    const Status status = LaunchGlobalAttention(args, nullptr);
    EXPECT_TRUE(status.ok()) << status.message();
    problem.Check(NormLimit(c), samples);
    return repeated.Get()[0];
  }
};

constexpr DType kTypes[] = {DType::kBf16, DType::kFp16};

// ---------------------------------------------------------------- values

TEST_F(GlobalAttentionTest, HopperGrids) {
  if (!HasHopper()) GTEST_SKIP() << "needs compute capability 9.0";
  for (const DType type : kTypes) {
    for (const int grid : kHopperGrids) {
      const Case c{.type = type, .batch = 2, .heads = 3, .height = grid, .width = grid};
      EXPECT_EQ(RunAndCheck(c, Kernel::kHopper, 100 + grid), 0u)
          << "ordinary scores need no second pass";
    }
  }
}

TEST_F(GlobalAttentionTest, PortableGrids) {
  // Single rows and columns, widths that are multiples of 8 and not, partial tiles, more bias terms
  // than four warps have room for, and the grids of the model.
  const int shapes[][2] = {{1, 1},   {1, 7},   {7, 1},   {2, 3},   {5, 13},  {14, 14},
                           {8, 8},   {16, 24}, {24, 16}, {17, 8},  {33, 65}, {1, 200},
                           {200, 1}, {3, 900}, {900, 2}, {32, 32}, {40, 40}, {64, 64}};
  for (const DType type : kTypes) {
    for (const auto& [height, width] : shapes) {
      const Case c{.type = type, .batch = 2, .heads = 2, .height = height, .width = width};
      EXPECT_EQ(RunAndCheck(c, Kernel::kPortable, 200 + height * 31 + width, 12), 0u);
    }
  }
}

TEST_F(GlobalAttentionTest, RandomShapes) {
  std::mt19937 random(7);
  const auto draw = [&](int least, int most) {
    return std::uniform_int_distribution<int>(least, most)(random);
  };
  for (int i = 0; i < 24; ++i) {
    const Case c{.type = kTypes[i % 2],
                 .batch = draw(1, 3),
                 .heads = draw(1, 5),
                 .height = draw(1, 50),
                 .width = draw(1, 50),
                 .layout = static_cast<Layout>(draw(0, 2)),
                 .spread = 0.5 + 0.5 * draw(0, 3),
                 .table_spread = 0.1 * draw(0, 5)};
    RunAndCheck(c, Kernel::kAuto, 300 + i, 8);
  }
}

TEST_F(GlobalAttentionTest, Batches) {
  for (const Kernel kernel : {Kernel::kHopper, Kernel::kPortable}) {
    if (kernel == Kernel::kHopper && !HasHopper()) continue;
    for (const int batch : {1, 2, 3, 9}) {
      // 12 heads and batch 9: several items a block. 48 has a last query tile with rows for some
      // groups only.
      RunAndCheck({.batch = batch, .heads = 12, .height = 32, .width = 32}, kernel, 400 + batch, 3);
      RunAndCheck({.type = DType::kFp16, .batch = batch, .heads = 2, .height = 40, .width = 40},
                  kernel, 410 + batch, 8);
    }
  }
}

// More items a block than one round of verdicts holds.
TEST_F(GlobalAttentionTest, ManyItems) {
  const Case c{.batch = 48, .heads = 12, .height = 32, .width = 32};
  RunAndCheck(c, Kernel::kAuto, 450, 1);
}

TEST_F(GlobalAttentionTest, Layouts) {
  for (const Kernel kernel : {Kernel::kHopper, Kernel::kPortable}) {
    if (kernel == Kernel::kHopper && !HasHopper()) continue;
    for (const Layout layout : {Layout::kFused, Layout::kHeadMajor, Layout::kPadded}) {
      for (const int grid : {32, 48}) {
        RunAndCheck({.batch = 2, .heads = 3, .height = grid, .width = grid, .layout = layout},
                    kernel, 500 + grid);
      }
    }
  }
}

// Strong tables: a kernel with swapped tables, a scaled query in the bias or none would be far off.
TEST_F(GlobalAttentionTest, TellsMistakesApart) {
  for (const Kernel kernel : {Kernel::kHopper, Kernel::kPortable}) {
    if (kernel == Kernel::kHopper && !HasHopper()) continue;
    const Case c{.batch = 1, .heads = 2, .height = 32, .width = 32, .table_spread = 0.3};
    Problem problem(c, 600);
    ASSERT_TRUE(LaunchGlobalAttention(problem.Args(kernel), nullptr).ok());
    problem.Check(NormLimit(c));
    const std::vector<uint16_t> out = problem.Out();
    for (const Mistake mistake :
         {Mistake::kSwappedTables, Mistake::kScaledQueryInBias, Mistake::kNoBias}) {
      EXPECT_GT(problem.Error(out, mistake, 24, false), 20 * NormLimit(c));
    }
  }
}

// ---------------------------------------------------------------- range

// Scores with a standard deviation of 16 and bias terms to match: some rows outgrow the first
// tile's maximum.
TEST_F(GlobalAttentionTest, WideScores) {
  for (const Kernel kernel : {Kernel::kHopper, Kernel::kPortable}) {
    if (kernel == Kernel::kHopper && !HasHopper()) continue;
    for (const DType type : kTypes) {
      for (const int grid : kHopperGrids) {
        const Case c{.type = type,
                     .batch = 1,
                     .heads = 2,
                     .height = grid,
                     .width = grid,
                     .spread = 4,
                     .table_spread = 0.7};
        const unsigned long long repeated = RunAndCheck(c, kernel, 700 + grid);
        if (kernel == Kernel::kHopper && type == DType::kFp16) EXPECT_GT(repeated, 0u);
      }
    }
  }
}

// Each query's own key lies half the grid away: every row of every item must be repeated.
TEST_F(GlobalAttentionTest, EveryRowRepeated) {
  if (!HasHopper()) GTEST_SKIP() << "needs compute capability 9.0";
  for (const DType type : kTypes) {
    for (const int grid : kHopperGrids) {
      const Case c{.type = type,
                   .batch = grid == 32 ? 9 : 2,
                   .heads = 3,
                   .height = grid,
                   .width = grid,
                   .spread = 5,
                   .table_spread = 0.1,
                   .far_match = true};
      const unsigned long long rows = int64_t{1} * c.batch * c.heads * c.tokens();
      EXPECT_EQ(RunAndCheck(c, Kernel::kHopper, 800 + grid, 8), rows);
    }
  }
}

// Scores of 1e5 and more: no NaN, and every result within the values' range.
TEST_F(GlobalAttentionTest, ExtremeScores) {
  for (const Kernel kernel : {Kernel::kHopper, Kernel::kPortable}) {
    if (kernel == Kernel::kHopper && !HasHopper()) continue;
    for (const DType type : kTypes) {
      const Case c{.type = type,
                   .batch = 1,
                   .heads = 2,
                   .height = 40,
                   .width = 40,
                   .spread = 200,
                   .table_spread = 50};
      Problem problem(c, 900);
      ASSERT_TRUE(LaunchGlobalAttention(problem.Args(kernel), nullptr).ok());
      for (const uint16_t bits : problem.Out()) ASSERT_LE(std::fabs(ToFloat(type, bits)), 6.f);
    }
  }
}

// ---------------------------------------------------------------- launches

TEST_F(GlobalAttentionTest, RepeatsBitForBit) {
  for (const int grid : {32, 64, 21}) {
    Problem problem({.batch = 3, .heads = 12, .height = grid, .width = grid}, 1000 + grid);
    ASSERT_TRUE(LaunchGlobalAttention(problem.Args(), nullptr).ok());
    const std::vector<uint16_t> first = problem.Out();
    for (int i = 0; i < 3; ++i) {
      problem.PoisonOut();
      ASSERT_TRUE(LaunchGlobalAttention(problem.Args(), nullptr).ok());
      EXPECT_EQ(problem.Out(), first);
    }
  }
}

// Two graphs alive, replayed in turn with inputs that change, against plain launches.
TEST_F(GlobalAttentionTest, Graphs) {
  cudaStream_t stream = nullptr;
  ASSERT_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  const Case cases[2] = {{.batch = 2, .heads = 3, .height = 64, .width = 64},
                         {.type = DType::kFp16, .batch = 1, .heads = 2, .height = 12, .width = 20}};
  Problem problems[2] = {{cases[0], 1100}, {cases[1], 1101}};
  cudaGraphExec_t graphs[2] = {};
  for (int i = 0; i < 2; ++i) {
    cudaGraph_t graph = nullptr;
    ASSERT_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    const Status status = LaunchGlobalAttention(problems[i].Args(), stream);
    ASSERT_CUDA(cudaStreamEndCapture(stream, &graph));
    ASSERT_TRUE(status.ok()) << status.message();
    ASSERT_CUDA(cudaGraphInstantiate(&graphs[i], graph, 0));
    ASSERT_CUDA(cudaGraphDestroy(graph));
  }
  for (const int seed : {1, 2}) {
    for (int i = 0; i < 2; ++i) {
      problems[i].Fill(1110 + 10 * seed + i);
      ASSERT_CUDA(cudaDeviceSynchronize());
      ASSERT_CUDA(cudaGraphLaunch(graphs[i], stream));
      ASSERT_CUDA(cudaStreamSynchronize(stream));
      const std::vector<uint16_t> replayed = problems[i].Out();
      problems[i].Check(NormLimit(cases[i]), 8);
      problems[i].PoisonOut();
      ASSERT_CUDA(cudaDeviceSynchronize());
      ASSERT_TRUE(LaunchGlobalAttention(problems[i].Args(), stream).ok());
      ASSERT_CUDA(cudaStreamSynchronize(stream));
      EXPECT_EQ(problems[i].Out(), replayed);
    }
  }
  for (cudaGraphExec_t graph : graphs) EXPECT_CUDA(cudaGraphExecDestroy(graph));
  EXPECT_CUDA(cudaStreamDestroy(stream));
}

TEST_F(GlobalAttentionTest, Threads) {
  constexpr int kThreads = 4;
  std::vector<std::unique_ptr<Problem>> problems;
  std::vector<std::vector<uint16_t>> alone;
  for (int t = 0; t < kThreads; ++t) {
    const int side = t % 2 == 0 ? 48 : 19;
    problems.push_back(
        std::make_unique<Problem>(Case{.heads = 4, .height = side, .width = side}, 1200 + t));
    ASSERT_TRUE(LaunchGlobalAttention(problems[t]->Args(), nullptr).ok());
    alone.push_back(problems[t]->Out());
    problems[t]->PoisonOut();
  }
  ASSERT_CUDA(cudaDeviceSynchronize());
  std::atomic<int> failures = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      cudaStream_t stream = nullptr;
      if (cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) != cudaSuccess) ++failures;
      for (int i = 0; i < 20; ++i) {
        if (!LaunchGlobalAttention(problems[t]->Args(), stream).ok()) ++failures;
      }
      if (cudaStreamSynchronize(stream) != cudaSuccess) ++failures;
      if (cudaStreamDestroy(stream) != cudaSuccess) ++failures;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failures, 0);
  for (int t = 0; t < kThreads; ++t) EXPECT_EQ(problems[t]->Out(), alone[t]);
}

// ---------------------------------------------------------------- arguments

TEST_F(GlobalAttentionTest, RejectsBadArguments) {
  Problem problem({.batch = 2, .heads = 2, .height = 32, .width = 32}, 1300);
  std::vector<uint16_t> host(64);
  using Change = std::function<void(GlobalAttentionArgs&)>;
  const auto off = [](const void* p, int bytes) {
    return static_cast<const void*>(static_cast<const char*>(p) + bytes);
  };
  const struct {
    const char* expected;  // part of the message
    Change change;
  } cases[] = {
      {"q is null", [](auto& a) { a.q = nullptr; }},
      {"k is null", [](auto& a) { a.k = nullptr; }},
      {"v is null", [](auto& a) { a.v = nullptr; }},
      {"rel_h is null", [](auto& a) { a.rel_h = nullptr; }},
      {"rel_w is null", [](auto& a) { a.rel_w = nullptr; }},
      {"out is null", [](auto& a) { a.out = nullptr; }},
      {"q is not aligned to 16 bytes", [&](auto& a) { a.q = off(a.q, 2); }},
      {"k is not aligned to 16 bytes", [&](auto& a) { a.k = off(a.k, 8); }},
      {"v is not aligned to 16 bytes", [&](auto& a) { a.v = off(a.v, 4); }},
      {"rel_h is not aligned to 16 bytes", [&](auto& a) { a.rel_h = off(a.rel_h, 8); }},
      {"rel_w is not aligned to 16 bytes", [&](auto& a) { a.rel_w = off(a.rel_w, 2); }},
      {"out is not aligned to 16 bytes",
       [&](auto& a) { a.out = const_cast<void*>(off(a.out, 2)); }},
      {"v is not device memory",
       [&](auto& a) {
         a.v = reinterpret_cast<const void*>((reinterpret_cast<uintptr_t>(host.data()) + 15) / 16 *
                                             16);
       }},
      {"repeated_rows is not device memory",
       [&](auto& a) {
         a.repeated_rows = reinterpret_cast<unsigned long long*>(
             (reinterpret_cast<uintptr_t>(host.data()) + 15) / 16 * 16);
       }},
      {"type must be bf16 or fp16", [](auto& a) { a.type = DType::kFp32; }},
      {"batch is 0", [](auto& a) { a.batch = 0; }},
      {"heads is -1", [](auto& a) { a.heads = -1; }},
      {"height is 0", [](auto& a) { a.height = 0; }},
      {"width is 70000", [](auto& a) { a.width = 70000; }},
      {"height * width is", [](auto& a) { a.height = a.width = 60000; }},
      {"qkv token stride is 388, must be a multiple of 8",
       [](auto& a) { a.qkv_strides.token = 388; }},
      {"qkv head stride is 0", [](auto& a) { a.qkv_strides.head = 0; }},
      {"qkv batch stride is -8", [](auto& a) { a.qkv_strides.batch = -8; }},
      {"out token stride is 130, must be a multiple of 8",
       [](auto& a) { a.out_strides.token = 130; }},
      {"out head stride is 8", [](auto& a) { a.out_strides.head = 8; }},
      {"out overlaps q", [](auto& a) { a.out = const_cast<void*>(a.q); }},
  };
  for (const auto& [expected, change] : cases) {
    GlobalAttentionArgs args = problem.Args();
    change(args);
    const Status status = LaunchGlobalAttention(args, nullptr);
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << expected;
    EXPECT_NE(status.message().find(expected), std::string::npos) << "got: " << status.message();
  }
  EXPECT_TRUE(LaunchGlobalAttention(problem.Args(), nullptr).ok())
      << "the unchanged arguments are good";
}

TEST_F(GlobalAttentionTest, RejectsMemoryOfAnotherDevice) {
  int devices = 0;
  ASSERT_CUDA(cudaGetDeviceCount(&devices));
  if (devices < 2) GTEST_SKIP() << "needs two GPUs";
  Problem problem({.height = 32, .width = 32}, 1400);
  ASSERT_CUDA(cudaSetDevice(1));
  const Status status = LaunchGlobalAttention(problem.Args(), nullptr);
  ASSERT_CUDA(cudaSetDevice(0));
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_NE(status.message().find("lies on device 0, the launch is for device 1"),
            std::string::npos)
      << status.message();
}

TEST_F(GlobalAttentionTest, SaysWhatIsNotSupported) {
  Problem odd({.height = 31, .width = 31}, 1500);
  const Status not_hopper = LaunchGlobalAttention(odd.Args(Kernel::kHopper), nullptr);
  EXPECT_EQ(not_hopper.code(), Code::kUnsupported);
  EXPECT_NE(not_hopper.message().find("square grid of 32, 40, 48, 64 or 80"), std::string::npos)
      << not_hopper.message();

  Problem wide({.heads = 1, .height = 1, .width = 20000}, 1501);
  const Status too_wide = LaunchGlobalAttention(wide.Args(), nullptr);
  EXPECT_EQ(too_wide.code(), Code::kUnsupported);
  EXPECT_NE(too_wide.message().find("bytes of shared memory"), std::string::npos)
      << too_wide.message();
}

}  // namespace
}  // namespace deepencoder::kernels::testing
