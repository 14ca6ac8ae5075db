#include "encoder/cpu/linear.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "encoder/cpu/cpu_features.h"
#include "encoder/cpu/parallel.h"

namespace deepencoder::cpu {
namespace {

constexpr int kDepth = 192, kWidth = 80;

struct Operands {
  std::vector<float> in, weights, bias, before;
};

Operands RandomOperands(int rows, DType type) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  const auto make = [&](size_t count, float deviation, DType to) {
    std::vector<float> values(count);
    for (float& value : values) value = RoundTo(to, deviation * normal(random));
    return values;
  };
  return {make(static_cast<size_t>(rows) * kDepth, 1.0f, type),
          make(size_t{kWidth} * kDepth, 0.1f, type), make(kWidth, 0.5f, DType::kFp32),
          make(static_cast<size_t>(rows) * kWidth, 2.0f, DType::kFp32)};
}

double Apply(Epilogue epilogue, double x, double before) {
  switch (epilogue) {
    case Epilogue::kNone:
      return x;
    case Epilogue::kGelu:
      return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0)));
    case Epilogue::kQuickGelu:
      return x / (1 + std::exp(-1.702 * x));
    case Epilogue::kAdd:
      return before + x;
  }
  return 0;
}

double RelativeError(const std::vector<float>& ours, const Operands& o, bool bias,
                     Epilogue epilogue) {
  double error = 0, norm = 0;
  for (size_t at = 0; at < ours.size(); ++at) {
    const size_t row = at / kWidth, column = at % kWidth;
    double sum = bias ? o.bias[column] : 0.0;
    for (int d = 0; d < kDepth; ++d) {
      sum += static_cast<double>(o.in[row * kDepth + d]) * o.weights[column * kDepth + d];
    }
    const double expected = Apply(epilogue, sum, o.before[at]);
    error += (ours[at] - expected) * (ours[at] - expected);
    norm += expected * expected;
  }
  return std::sqrt(error / norm);
}

struct Case {
  Epilogue epilogue;
  bool bias;
};

void ExpectProducts(DType type, const Case& what) {
  const ThreadScope threads(2);
  const std::vector<int> row_counts = {5, 64, 257};
  for (const int rows : row_counts) {
    const Operands o = RandomOperands(rows, type);
    Arena arena;
    const Linear linear({.depth = kDepth,
                         .width = kWidth,
                         .input = type,
                         .output = DType::kFp32,
                         .epilogue = what.epilogue},
                        row_counts, o.weights, what.bias ? o.bias : std::vector<float>(), arena);
    LinearRunner runner = {dnnl::stream(CpuEngine()), arena.Allocate(linear.scratchpad_bytes())};
    std::vector<std::byte> in(o.in.size() * SizeOf(type));
    Convert(o.in.data(), type, in.data(), o.in.size());
    std::vector<float> out = o.before;
    linear.Run(runner, rows, in.data(), out.data());
    EXPECT_LT(RelativeError(out, o, what.bias, what.epilogue), 1e-6)
        << rows << " rows, epilogue " << static_cast<int>(what.epilogue);
  }
}

class LinearTest : public testing::TestWithParam<Case> {};

TEST_P(LinearTest, Fp32MatchesDouble) { ExpectProducts(DType::kFp32, GetParam()); }

// Operands are already rounded, so that sums in floats leave float errors.
TEST_P(LinearTest, Bf16MatchesDouble) {
  if (!Cpu().amx_bf16) GTEST_SKIP() << Cpu().name << " has no AMX";
  ExpectProducts(DType::kBf16, GetParam());
}

INSTANTIATE_TEST_SUITE_P(Epilogues, LinearTest,
                         testing::Values(Case{Epilogue::kNone, true}, Case{Epilogue::kNone, false},
                                         Case{Epilogue::kGelu, true},
                                         Case{Epilogue::kQuickGelu, true},
                                         Case{Epilogue::kAdd, true}));

}  // namespace
}  // namespace deepencoder::cpu
