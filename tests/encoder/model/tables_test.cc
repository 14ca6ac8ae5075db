#include "encoder/model/tables.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

namespace deepencoder {
namespace {

using testing::FloatEq;
using testing::Pointwise;

std::vector<float> RandomTable(size_t size) {
  std::mt19937 generator(1);
  std::normal_distribution<float> normal;
  std::vector<float> table(size);
  for (float& value : table) value = normal(generator);
  return table;
}

// Keys' cubic with a = -0.5 as textbooks expand it.
double Keys(double t) {
  t = std::fabs(t);
  if (t < 1) return 1.5 * t * t * t - 2.5 * t * t + 1;
  if (t < 2) return -0.5 * t * t * t + 2.5 * t * t - 4 * t + 2;
  return 0;
}

// [to][from], every input with its weight, zeros included.
std::vector<double> DenseWeights(int from, int to) {
  std::vector<double> weights(to * from);
  const double stretch = from > to ? static_cast<double>(from) / to : 1.0;
  for (int o = 0; o < to; ++o) {
    double sum = 0;
    for (int j = 0; j < from; ++j) {
      const double centre = (o + 0.5) * from / to;
      sum += weights[o * from + j] = Keys((j + 0.5 - centre) / stretch);
    }
    for (int j = 0; j < from; ++j) weights[o * from + j] /= sum;
  }
  return weights;
}

TEST(ResizePositionsTest, EqualsADenseEvaluationInTwoDimensions) {
  constexpr int kWidth = 3;
  for (const auto& [from, to] : {std::pair{64, 32},
                                 {64, 40},
                                 {64, 48},
                                 {64, 80},
                                 {16, 8},
                                 {16, 10},
                                 {16, 12},
                                 {16, 20},
                                 {5, 3},
                                 {3, 7}}) {
    const std::vector<float> table = RandomTable(from * from * kWidth);
    const std::vector<float> resized = ResizePositions(table.data(), from, to, kWidth);
    ASSERT_EQ(resized.size(), static_cast<size_t>(to) * to * kWidth);
    const std::vector<double> weights = DenseWeights(from, to);
    for (int y = 0; y < to; ++y) {
      for (int x = 0; x < to; ++x) {
        double expected[kWidth] = {};
        for (int j = 0; j < from; ++j) {
          for (int i = 0; i < from; ++i) {
            const double weight = weights[y * from + j] * weights[x * from + i];
            if (weight == 0) continue;
            for (int c = 0; c < kWidth; ++c) {
              expected[c] += weight * table[(j * from + i) * kWidth + c];
            }
          }
        }
        for (int c = 0; c < kWidth; ++c) {
          ASSERT_NEAR(resized[(y * to + x) * kWidth + c], expected[c], 1e-6)
              << from << " -> " << to << " at " << y << ", " << x;
        }
      }
    }
  }
}

TEST(ResizePositionsTest, SameGridIsACopy) {
  const std::vector<float> table = RandomTable(16 * 16 * 4);
  EXPECT_THAT(ResizePositions(table.data(), 16, 16, 4), Pointwise(FloatEq(), table));
}

// By hand, 4 -> 2: the kernel is twice as wide; at distances 1/4, 1/4, 3/4, 5/4 it is 0.8671875,
// 0.8671875, 0.2265625, -0.0703125, which sum to 1.890625.
TEST(ResizePositionsTest, HalvingWidensTheKernel) {
  std::vector<float> table(16);
  for (int y = 0; y < 4; ++y) {
    for (int x = 0; x < 4; ++x) table[y * 4 + x] = x == 0 ? 1.0f : (x == 3 ? 10.0f : 0.0f);
  }
  const double near = 0.8671875 / 1.890625, far = -0.0703125 / 1.890625;
  const auto left = static_cast<float>(near + 10 * far);
  const auto right = static_cast<float>(far + 10 * near);
  EXPECT_THAT(ResizePositions(table.data(), 4, 2, 1),
              Pointwise(FloatEq(), {left, right, left, right}));
}

TEST(ResizeRelPosTest, ByHand) {
  // 3 -> 5: sources 0.1 - 0.5 = 0 (clamped), 0.4, 1, 1.6, 2.2 (the last row is repeated).
  const float table[] = {0, 100, 10, 110, 20, 120};
  EXPECT_THAT(ResizeRelPos(table, 3, 5, 2),
              Pointwise(FloatEq(),
                        {0.0f, 100.0f, 4.0f, 104.0f, 10.0f, 110.0f, 16.0f, 116.0f, 20.0f, 120.0f}));
  // 5 -> 3 takes two neighbours and not an average: sources 1/3, 2, 11/3.
  const float ramp[] = {0, 3, 6, 9, 0};
  EXPECT_THAT(ResizeRelPos(ramp, 5, 3, 1), Pointwise(FloatEq(), {1.0f, 6.0f, 3.0f}));
}

TEST(ResizeRelPosTest, OffsetZeroStaysTheStoredCentre) {
  const std::vector<float> table = RandomTable(127 * 64);
  for (const int grid : {32, 40, 48, 80}) {
    const std::vector<float> resized = ResizeRelPos(table.data(), 127, 2 * grid - 1, 64);
    for (int c = 0; c < 64; ++c) EXPECT_EQ(resized[(grid - 1) * 64 + c], table[63 * 64 + c]);
  }
  EXPECT_EQ(ResizeRelPos(table.data(), 127, 127, 64), table);
}

}  // namespace
}  // namespace deepencoder
