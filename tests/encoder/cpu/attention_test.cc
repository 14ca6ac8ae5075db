// Every attention of the encoder against sums in double precision, with tables that are different
// for h and w and in every row.
#include "encoder/cpu/attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "encoder/cpu/compute.h"
#include "encoder/cpu/parallel.h"
#include "encoder/cpu/workspace.h"
#include "encoder/model/config.h"

namespace deepencoder::cpu {
namespace {

struct Kernel {
  DType type;
  Isa isa;
};

std::vector<Kernel> Kernels() {
  std::vector<Kernel> kernels;
  for (const Isa isa : Cpu().isas) kernels.push_back({DType::kFp32, isa});
  if (Cpu().amx_bf16) kernels.push_back({DType::kBf16, Cpu().best()});
  return kernels;
}

// Values of one attention, rounded to the kernel's type: its only errors are then those of its sums
// and of its probabilities.
struct Problem {
  int heads, width, tokens;
  std::vector<float> qkv, padding, rel_h, rel_w;
};

Problem RandomProblem(DType type, int heads, int tokens, int length, float spread) {
  std::mt19937 random(11);
  std::normal_distribution<float> normal;
  const auto make = [&](size_t count, float deviation) {
    std::vector<float> values(count);
    for (float& value : values) value = RoundTo(type, deviation * normal(random));
    return values;
  };
  const int width = heads * kHeadSize;
  const size_t table = static_cast<size_t>(std::max(2 * length - 1, 0)) * kHeadSize;
  return {heads,
          width,
          tokens,
          make(static_cast<size_t>(tokens) * 3 * width, spread),
          make(size_t{3} * width, spread),
          make(table, 0.3f),
          make(table, 0.15f)};
}

struct Key {
  const float* row;  // of qkv
  int y, x;
};

// Sums in double for one query and head; y, x are its place among the keys; length 0: no tables.
std::vector<double> Expected(const Problem& p, const float* query_row, int y, int x, int head,
                             const std::vector<Key>& keys, int length) {
  const float* q = query_row + head * kHeadSize;
  const auto dot = [q](const float* with) {
    double sum = 0;
    for (int d = 0; d < kHeadSize; ++d) sum += static_cast<double>(q[d]) * with[d];
    return sum;
  };
  std::vector<double> scores;
  for (const Key& key : keys) {
    double score = dot(key.row + p.width + head * kHeadSize) / 8;
    if (length > 0) {
      score += dot(p.rel_h.data() + static_cast<size_t>(y - key.y + length - 1) * kHeadSize);
      score += dot(p.rel_w.data() + static_cast<size_t>(x - key.x + length - 1) * kHeadSize);
    }
    scores.push_back(score);
  }
  const double max = *std::max_element(scores.begin(), scores.end());
  std::vector<double> out(kHeadSize);
  double total = 0;
  for (size_t i = 0; i < keys.size(); ++i) {
    const double weight = std::exp(scores[i] - max);
    total += weight;
    for (int d = 0; d < kHeadSize; ++d)
      out[d] += weight * keys[i].row[2 * p.width + head * kHeadSize + d];
  }
  for (double& value : out) value /= total;
  return out;
}

// Ours, run on a grid of `side` / 16.
class Runner {
 public:
  Runner(const Kernel& kernel, int side)
      : compute_(Compute::For(kernel.type, kernel.isa)),
        workspace_(compute_, std::vector<int>{side}, kThreads, 64) {}

  RelPosPair Tables(const Problem& p, int length) {
    const auto pack = [&](const std::vector<float>& table) {
      std::byte* packed = arena_.Allocate(compute_.attention->rel_pos_bytes(length));
      compute_.attention->pack_rel_pos(table.data(), length, packed);
      return packed;
    };
    return {pack(p.rel_h), pack(p.rel_w)};
  }

  std::vector<float> Window(const Problem& p, int grid) {
    const RelPosPair tables = Tables(p, kWindow);
    return Run(p, [&](const std::byte* qkv, std::byte* out) {
      WindowAttention(*compute_.attention, SizeOf(compute_.type), grid, qkv, Typed(p.padding),
                      tables, out, workspace_);
    });
  }
  std::vector<float> Global(const Problem& p, const AttentionShape& shape) {
    const RelPosPair tables = shape.relative ? Tables(p, shape.rows) : RelPosPair{};
    return Run(p, [&](const std::byte* qkv, std::byte* out) {
      GlobalAttention(*compute_.attention, SizeOf(compute_.type), shape, p.heads, qkv, tables, out,
                      workspace_);
    });
  }

 private:
  static constexpr int kThreads = 2;

  const std::byte* Typed(const std::vector<float>& values) {
    std::byte* typed = arena_.Allocate(values.size() * SizeOf(compute_.type));
    Convert(values.data(), compute_.type, typed, values.size());
    return typed;
  }
  template <class Attention>
  std::vector<float> Run(const Problem& p, const Attention& attention) {
    const ThreadScope threads(kThreads);
    const size_t count = static_cast<size_t>(p.tokens) * p.width;
    std::byte* out = arena_.Allocate(count * SizeOf(compute_.type));
    attention(Typed(p.qkv), out);
    std::vector<float> floats(count);
    ConvertToFloat(compute_.type, out, floats.data(), count);
    return floats;
  }

  Compute compute_;
  Workspace workspace_;
  Arena arena_;
};

class AttentionTest : public testing::TestWithParam<Kernel> {
 protected:
  // bf16: probabilities and results are rounded. fp32: scores of up to a hundred carry errors of
  // 2^-18, and averages over thousands of keys are small against them.
  double Bar() const { return GetParam().type == DType::kBf16 ? 4e-3 : 4e-6; }

  // Compares every `step`-th query; key_of lists what a query's window holds and says where it is
  // in it.
  template <class KeysOf>
  void Expect(const Problem& p, const std::vector<float>& ours, int length, int step,
              const KeysOf& keys_of) {
    double error = 0, norm = 0;
    for (int token = 0; token < p.tokens; token += step) {
      int y = 0, x = 0;
      const std::vector<Key> keys = keys_of(token, &y, &x);
      for (int head = 0; head < p.heads; ++head) {
        const std::vector<double> expected = Expected(
            p, p.qkv.data() + static_cast<size_t>(token) * 3 * p.width, y, x, head, keys, length);
        const float* got = ours.data() + static_cast<size_t>(token) * p.width + head * kHeadSize;
        for (int d = 0; d < kHeadSize; ++d) {
          error += (got[d] - expected[d]) * (got[d] - expected[d]);
          norm += expected[d] * expected[d];
        }
      }
    }
    EXPECT_LT(std::sqrt(error / norm), Bar());
  }

  void ExpectWindows(int grid, int step) {
    const Problem p = RandomProblem(GetParam().type, kSamHeads, grid * grid, kWindow, 1.0f);
    const std::vector<float> ours = Runner(GetParam(), grid * kPatchSide).Window(p, grid);
    Expect(p, ours, kWindow, step, [&](int token, int* y, int* x) {
      const int top = token / grid / kWindow * kWindow, left = token % grid / kWindow * kWindow;
      *y = token / grid - top;
      *x = token % grid - left;
      std::vector<Key> keys;
      for (int i = 0; i < kWindow * kWindow; ++i) {
        const int ky = i / kWindow, kx = i % kWindow;
        const bool token_here = top + ky < grid && left + kx < grid;
        const size_t at = static_cast<size_t>(top + ky) * grid + left + kx;
        keys.push_back({token_here ? p.qkv.data() + at * 3 * p.width : p.padding.data(), ky, kx});
      }
      return keys;
    });
  }

  // Two heads: heads do not meet, and the largest grids take seconds each.
  void ExpectGlobal(AttentionShape shape, int side, int step, float spread = 1.0f) {
    constexpr int kHeads = 2;
    shape.width = kHeads * kHeadSize;
    const Problem p = RandomProblem(GetParam().type, kHeads, shape.rows * shape.columns,
                                    shape.relative ? shape.rows : 0, spread);
    const std::vector<float> ours = Runner(GetParam(), side).Global(p, shape);
    std::vector<Key> keys;
    keys.reserve(p.tokens);
    for (int i = 0; i < p.tokens; ++i) {
      keys.push_back({p.qkv.data() + static_cast<size_t>(i) * 3 * p.width, i / shape.columns,
                      i % shape.columns});
    }
    Expect(p, ours, shape.relative ? shape.rows : 0, step, [&](int token, int* y, int* x) {
      *y = token / shape.columns;
      *x = token % shape.columns;
      return keys;
    });
  }
};

// 2 x 2 windows, three of them cut off: padded positions are keys, and their tables' rows count.
TEST_P(AttentionTest, WindowsWithPadding) { ExpectWindows(20, 1); }
TEST_P(AttentionTest, WindowsWithoutPadding) { ExpectWindows(28, 3); }
TEST_P(AttentionTest, OneWindowLargerThanTheGrid) { ExpectWindows(8, 1); }

TEST_P(AttentionTest, GlobalOfEverySide) {
  for (const int side : kViewSides) {
    SCOPED_TRACE(side);
    ExpectGlobal(SamGlobalShape(GridOf(side)), side, 251);
  }
}

TEST_P(AttentionTest, GlobalWholeGrid) { ExpectGlobal(SamGlobalShape(20), 320, 1); }

// Scores of some hundreds: all but a few probabilities vanish, and the running maximum jumps.
TEST_P(AttentionTest, GlobalWithFarScores) { ExpectGlobal(SamGlobalShape(32), 512, 17, 6.0f); }

TEST_P(AttentionTest, ClipOfEverySide) {
  for (const int side : kViewSides) {
    SCOPED_TRACE(side);
    ExpectGlobal(ClipShape(OutputGridOf(side)), side, 3);
  }
}

std::string KernelName(const testing::TestParamInfo<Kernel>& instance) {
  constexpr const char* kIsaNames[] = {"Baseline", "Avx2", "Avx512"};
  if (instance.param.type == DType::kBf16) return "Amx";
  return kIsaNames[static_cast<int>(instance.param.isa)];
}

INSTANTIATE_TEST_SUITE_P(Kernels, AttentionTest, testing::ValuesIn(Kernels()), KernelName);

}  // namespace
}  // namespace deepencoder::cpu
