#include "encoder/image/resize.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <tuple>

#include "encoder/image/transpose.h"
#include "encoder/resample/bicubic_filter.h"

namespace deepencoder {
namespace {

RgbImage Noise(int width, int height, uint32_t seed) {
  std::mt19937 random(seed);
  cv::Mat rgb(height, width, CV_8UC3);
  // Black and white mostly: sums leave 0..255 on both sides and must be clamped.
  std::generate_n(rgb.ptr(), rgb.total() * 3, [&] {
    const uint32_t value = random();
    return static_cast<uint8_t>(value & 0x300 ? (value & 1) * 255 : value >> 16);
  });
  return RgbImage(rgb);
}

std::vector<uint8_t> Resized(const RgbImage& image, int width, int height,
                             const ResampleKernel& kernel) {
  std::vector<uint8_t> result;
  int next = 0;
  ResizeBicubic(image, width, height, kernel, [&](int y, const uint8_t* row) {
    EXPECT_EQ(y, next++);
    result.insert(result.end(), row, row + static_cast<size_t>(width) * 3);
  });
  return result;
}

// One axis of the definition, sample by sample: `lines` lines of `in` pixels `step` bytes apart.
std::vector<uint8_t> Axis(const std::vector<uint8_t>& from, int in, int out, bool horizontal,
                          int other) {
  if (in == out) return from;
  std::vector<uint8_t> to(static_cast<size_t>(out) * static_cast<size_t>(other) * 3);
  const auto at = [&](int along, int across, int length, int c) {
    return static_cast<size_t>(horizontal ? across * length + along : along * other + across) * 3 +
           static_cast<size_t>(c);
  };
  for (int o = 0; o < out; ++o) {
    const AxisWeights axis = BicubicWeights(in, out, o);
    for (int line = 0; line < other; ++line) {
      for (int c = 0; c < 3; ++c) {
        int64_t sum = int64_t{1} << (kWeightBits - 1);
        for (size_t k = 0; k < axis.weights.size(); ++k) {
          sum += int64_t{axis.weights[k]} * from[at(axis.first + static_cast<int>(k), line, in, c)];
        }
        to[at(o, line, out, c)] =
            static_cast<uint8_t>(std::clamp<int64_t>(sum >> kWeightBits, 0, 255));
      }
    }
  }
  return to;
}

std::vector<uint8_t> Reference(const RgbImage& image, int width, int height) {
  const std::vector<uint8_t> pixels(image.data(), image.data() + image.bytes());
  const std::vector<uint8_t> rows = Axis(pixels, image.width(), width, true, image.height());
  return Axis(rows, image.height(), height, false, width);
}

TEST(BicubicWeights, SumToOneAndStayInside) {
  for (const auto& [in, out] : {std::pair{100, 37}, std::pair{37, 100}, std::pair{1, 640},
                                std::pair{1654, 1280}, std::pair{65000, 512}, std::pair{5, 5}}) {
    for (int o = 0; o < out; ++o) {
      const AxisWeights axis = BicubicWeights(in, out, o);
      ASSERT_FALSE(axis.weights.empty());
      EXPECT_GE(axis.first, 0);
      EXPECT_LE(axis.first + static_cast<int>(axis.weights.size()), in);
      const int64_t sum = std::accumulate(axis.weights.begin(), axis.weights.end(), int64_t{0});
      // Each weight was rounded by at most a half.
      EXPECT_NEAR(static_cast<double>(sum), 1 << kWeightBits,
                  0.5 * static_cast<double>(axis.weights.size()));
    }
  }
}

TEST(BicubicWeights, AreKeysCubicAtTheMiddleOfTwoSamples) {
  // Twice the size: output 2 of 8 lies a quarter before input 1; a = -0.5.
  const AxisWeights axis = BicubicWeights(8, 16, 4);
  EXPECT_EQ(axis.first, 0);
  const std::vector<int32_t> expected = {-98304 /* -3/128 */, 950272 /* 29/128 */,
                                         3637248 /* 111/128 */, -294912 /* -9/128 */};
  EXPECT_EQ(axis.weights, expected);
}

class EveryKernel : public ::testing::TestWithParam<size_t> {
 protected:
  const ResampleKernel& kernel() const { return ResampleKernels()[GetParam()]; }
};

TEST_P(EveryKernel, EqualsTheDefinition) {
  uint32_t seed = 1;
  for (const auto& [in_width, in_height, width, height] :
       {std::tuple{67, 45, 31, 20}, std::tuple{67, 45, 130, 99}, std::tuple{200, 131, 64, 200},
        std::tuple{64, 64, 64, 20}, std::tuple{64, 64, 20, 64}, std::tuple{64, 64, 64, 64},
        std::tuple{1, 1, 9, 7}, std::tuple{1, 300, 5, 11}, std::tuple{300, 1, 11, 5},
        std::tuple{3, 900, 2, 7}, std::tuple{900, 3, 7, 2}, std::tuple{5, 700, 5, 1},
        std::tuple{333, 257, 1, 1}, std::tuple{40000, 2, 50, 3}, std::tuple{2, 40000, 3, 50},
        std::tuple{21, 129, 22, 128}}) {
    const RgbImage image = Noise(in_width, in_height, seed++);
    EXPECT_TRUE(Resized(image, width, height, kernel()) == Reference(image, width, height))
        << kernel().name << ": " << in_width << " x " << in_height << " to " << width << " x "
        << height;
  }
}

TEST_P(EveryKernel, KeepsAUniformPicture) {
  for (const int value : {0, 1, 127, 255}) {
    const RgbImage image(cv::Mat(70, 90, CV_8UC3, cv::Scalar::all(value)));
    const std::vector<uint8_t> result = Resized(image, 41, 133, kernel());
    EXPECT_TRUE(std::all_of(result.begin(), result.end(), [&](uint8_t v) { return v == value; }));
  }
}

TEST_P(EveryKernel, ReadsAndWritesNothingBeyondItsRows) {
  // Buffers of exactly the size, for AddressSanitizer, and any number of columns and taps.
  std::mt19937 random(5);
  for (size_t count = 1; count < 150; count += 7) {
    for (size_t taps = 1; taps < 10; ++taps) {
      std::vector<uint8_t> rows(count * taps), out(count);
      std::generate(rows.begin(), rows.end(), [&] { return static_cast<uint8_t>(random()); });
      std::vector<int32_t> weights(taps);
      // Each at most 1 in size, and all together at most 2: a filter's range, in which no sum of products
      // leaves 32 bits.
      const uint32_t range = std::min(1u << 23, (1u << 24) / static_cast<uint32_t>(taps));
      for (int32_t& w : weights) {
        w = static_cast<int32_t>(random() % range) - static_cast<int32_t>(range / 2);
      }
      std::vector<int32_t> packed(kernel().packed_words(taps));
      kernel().pack(weights, packed.data());
      kernel().run(rows.data(), count, taps, packed.data(), out.data(), count);
      for (size_t i = 0; i < count; ++i) {
        int64_t sum = 1 << (kWeightBits - 1);
        for (size_t k = 0; k < taps; ++k) sum += int64_t{weights[k]} * rows[k * count + i];
        EXPECT_EQ(out[i], std::clamp<int64_t>(sum >> kWeightBits, 0, 255));
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(OfThisCpu, EveryKernel,
                         ::testing::Range<size_t>(0, ResampleKernels().size()),
                         [](const auto& param_info) {
                           return ResampleKernels()[param_info.param].name;
                         });

TEST(TransposeBytes, MovesEveryByte) {
  for (const auto& [rows, columns] :
       {std::pair<size_t, size_t>{64, 200}, std::pair<size_t, size_t>{200, 64},
        std::pair<size_t, size_t>{17, 33}, std::pair<size_t, size_t>{5, 3},
        std::pair<size_t, size_t>{48, 96}, std::pair<size_t, size_t>{64, 64}}) {
    std::vector<uint8_t> from(rows * columns), to(rows * columns);
    for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<uint8_t>(i * 31 + i / 256);
    TransposeBytes(from.data(), columns, rows, columns, to.data(), rows);
    for (size_t r = 0; r < rows; ++r) {
      for (size_t c = 0; c < columns; ++c) ASSERT_EQ(to[c * rows + r], from[r * columns + c]);
    }
  }
}

}  // namespace
}  // namespace deepencoder
