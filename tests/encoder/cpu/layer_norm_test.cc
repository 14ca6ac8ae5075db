#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "encoder/base/dtype.h"
#include "encoder/cpu/compute.h"

namespace deepencoder::cpu {
namespace {

struct Rows {
  int width, rows;
  std::vector<float> x, weight, bias;
};

Rows RandomRows(int width, int rows, float mean, float deviation) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  Rows made = {width, rows, std::vector<float>(static_cast<size_t>(width) * rows), {}, {}};
  for (float& value : made.x) value = mean + deviation * normal(random);
  for (int i = 0; i < width; ++i) {
    made.weight.push_back(1.0f + 0.3f * normal(random));
    made.bias.push_back(0.2f * normal(random));
  }
  return made;
}

std::vector<double> Reference(const Rows& in, double eps) {
  std::vector<double> out;
  for (int row = 0; row < in.rows; ++row) {
    const float* x = in.x.data() + static_cast<size_t>(row) * in.width;
    double mean = 0, variance = 0;
    for (int i = 0; i < in.width; ++i) mean += x[i];
    mean /= in.width;
    for (int i = 0; i < in.width; ++i) variance += (x[i] - mean) * (x[i] - mean);
    variance /= in.width;
    for (int i = 0; i < in.width; ++i) {
      out.push_back((x[i] - mean) / std::sqrt(variance + eps) * in.weight[i] + in.bias[i]);
    }
  }
  return out;
}

template <class T>
std::vector<T> Ours(const Compute& compute, const Rows& in, float eps, DType to) {
  std::vector<T> out(in.x.size());
  compute.LayerNorm(in.x.data(), {in.weight.data(), in.bias.data()}, eps, in.width, in.rows, to,
                    out.data());
  return out;
}

double LargestDifference(const std::vector<float>& ours, const std::vector<double>& reference) {
  double largest = 0;
  for (size_t i = 0; i < ours.size(); ++i)
    largest = std::max(largest, std::abs(ours[i] - reference[i]));
  return largest;
}

class LayerNormTest : public testing::TestWithParam<Isa> {
 protected:
  const Compute compute_ = Compute::For(DType::kFp32, GetParam());
};

TEST_P(LayerNormTest, MatchesDouble) {
  for (const int width : {256, 768, 1024}) {
    const Rows in =
        RandomRows(width, 70, 0.5f, 1.5f);  // more than one piece of 32 rows, the last short
    EXPECT_LT(
        LargestDifference(Ours<float>(compute_, in, 1e-6f, DType::kFp32), Reference(in, 1e-6)),
        3e-6);
  }
}

// A variance near eps: here alone a wrong eps shows, deeper in the model it is lost in rounding.
TEST_P(LayerNormTest, TellsEpsApart) {
  const Rows in = RandomRows(768, 8, 0.0f, 3e-3f);  // variance 9e-6
  for (const float eps : {1e-6f, 1e-5f}) {
    const std::vector<float> ours = Ours<float>(compute_, in, eps, DType::kFp32);
    EXPECT_LT(LargestDifference(ours, Reference(in, eps)), 3e-6);
    EXPECT_GT(LargestDifference(ours, Reference(in, eps == 1e-6f ? 1e-5 : 1e-6)), 0.1);
  }
}

TEST_P(LayerNormTest, KeepsASmallVarianceBesideALargeMean) {
  const Rows in = RandomRows(1024, 4, 100.0f, 0.1f);
  // An input's own rounding, 100 * 2^-24, is 6e-5 of its deviation; the mean may be off by a few of
  // those.
  EXPECT_LT(LargestDifference(Ours<float>(compute_, in, 1e-5f, DType::kFp32), Reference(in, 1e-5)),
            5e-4);
}

TEST_P(LayerNormTest, RoundsToBf16AsFloatToBf16Does) {
  const Rows in = RandomRows(768, 40, 0.1f, 1.0f);
  const std::vector<float> floats = Ours<float>(compute_, in, 1e-6f, DType::kFp32);
  const std::vector<uint16_t> halves = Ours<uint16_t>(compute_, in, 1e-6f, DType::kBf16);
  for (size_t i = 0; i < floats.size(); ++i) ASSERT_EQ(halves[i], FloatToBf16(floats[i])) << i;
}

TEST_P(LayerNormTest, WorksInPlace) {
  Rows in = RandomRows(1024, 33, 0.1f, 1.0f);
  const std::vector<float> apart = Ours<float>(compute_, in, 1e-5f, DType::kFp32);
  compute_.LayerNorm(in.x.data(), {in.weight.data(), in.bias.data()}, 1e-5f, in.width, in.rows,
                     DType::kFp32, in.x.data());
  EXPECT_EQ(in.x, apart);
}

INSTANTIATE_TEST_SUITE_P(InstructionSets, LayerNormTest, testing::ValuesIn(Cpu().isas));

}  // namespace
}  // namespace deepencoder::cpu
