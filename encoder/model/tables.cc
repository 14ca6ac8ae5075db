#include "encoder/model/tables.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace deepencoder {
namespace {

// Keys' cubic convolution kernel with a = -0.5; zero from 2 on.
double Cubic(double t) {
  constexpr double a = -0.5;
  t = std::fabs(t);
  if (t < 1.0) return ((a + 2.0) * t - (a + 3.0)) * t * t + 1.0;
  if (t < 2.0) return (((t - 5.0) * t + 8.0) * t - 4.0) * a;
  return 0.0;
}

// Output element o is the sum of weights[k] * input[first + k].
struct Taps {
  int first;
  std::vector<double> weights;  // sums to 1
};

// Antialiasing widens the kernel by the reduction factor, as Pillow and PyTorch do.
std::vector<Taps> CubicTaps(int from, int to) {
  const double scale = static_cast<double>(from) / to;
  const double stretch = std::max(scale, 1.0);
  const double support = 2.0 * stretch;
  std::vector<Taps> all(to);
  for (int o = 0; o < to; ++o) {
    const double centre = (o + 0.5) * scale;
    // Inputs from trunc(centre - support + 1/2) to before trunc(centre + support + 1/2).
    const int first = std::max(static_cast<int>(std::trunc(centre - support + 0.5)), 0);
    const int last = std::min(static_cast<int>(std::trunc(centre + support + 0.5)), from);
    Taps& taps = all[o];
    taps.first = first;
    double sum = 0.0;
    for (int j = first; j < last; ++j) {
      taps.weights.push_back(Cubic((j - centre + 0.5) / stretch));
      sum += taps.weights.back();
    }
    for (double& weight : taps.weights) weight /= sum;
  }
  return all;
}

}  // namespace

std::vector<float> ResizePositions(const float* table, int from, int to, int width) {
  const size_t line = static_cast<size_t>(to) * width;  // of the horizontally resized table
  const std::vector<Taps> taps = CubicTaps(from, to);

  std::vector<double> horizontal(from * line, 0.0);  // [from][to][width]
  for (int y = 0; y < from; ++y) {
    for (int x = 0; x < to; ++x) {
      double* out = &horizontal[y * line + static_cast<size_t>(x) * width];
      for (size_t k = 0; k < taps[x].weights.size(); ++k) {
        const double weight = taps[x].weights[k];
        const float* in = table + (static_cast<size_t>(y) * from + taps[x].first + k) * width;
        for (int c = 0; c < width; ++c) out[c] += weight * in[c];
      }
    }
  }

  std::vector<float> resized(to * line);  // [to][to][width]
  std::vector<double> sums(line);
  for (int y = 0; y < to; ++y) {
    std::fill(sums.begin(), sums.end(), 0.0);
    for (size_t k = 0; k < taps[y].weights.size(); ++k) {
      const double weight = taps[y].weights[k];
      const double* in = &horizontal[(taps[y].first + k) * line];
      for (size_t i = 0; i < line; ++i) sums[i] += weight * in[i];
    }
    std::transform(sums.begin(), sums.end(), resized.begin() + static_cast<ptrdiff_t>(y * line),
                   [](double sum) { return static_cast<float>(sum); });
  }
  return resized;
}

std::vector<float> ResizeRelPos(const float* table, int from, int to, int width) {
  std::vector<float> resized(static_cast<size_t>(to) * width);
  for (int o = 0; o < to; ++o) {
    const double source = std::max((o + 0.5) * from / to - 0.5, 0.0);
    const int low = std::min(static_cast<int>(source), from - 1);
    const int high = std::min(low + 1, from - 1);
    const double fraction = source - low;
    const float* below = table + static_cast<size_t>(low) * width;
    const float* above = table + static_cast<size_t>(high) * width;
    float* out = &resized[static_cast<size_t>(o) * width];
    for (int c = 0; c < width; ++c) {
      out[c] = static_cast<float>((1.0 - fraction) * below[c] + fraction * above[c]);
    }
  }
  return resized;
}

}  // namespace deepencoder
