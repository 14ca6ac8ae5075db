#include "encoder/resample/bicubic_filter.h"

#include <algorithm>
#include <cmath>

namespace deepencoder {
namespace {

double Cubic(double t) {
  constexpr double kA = -0.5;
  t = std::abs(t);
  if (t < 1.0) return ((kA + 2.0) * t - (kA + 3.0)) * t * t + 1;
  if (t < 2.0) return (((t - 5) * t + 8) * t - 4) * kA;
  return 0.0;
}

}  // namespace

BicubicFilter MakeBicubicFilter(int in, int out) {
  const double scale = static_cast<double>(in) / out;
  const double stretch = std::max(scale, 1.0);
  const double support = 2.0 * stretch, shrink = 1.0 / stretch;
  const int widest = static_cast<int>(std::ceil(support)) * 2 + 1;
  BicubicFilter filter;
  filter.in = in, filter.out = out, filter.taps = widest;
  filter.first.resize(out), filter.count.resize(out);
  filter.weights.assign(static_cast<size_t>(out) * widest, 0);
  std::vector<double> weights(widest);
  for (int i = 0; i < out; ++i) {
    const double centre = (i + 0.5) * scale;
    const int first = std::max(static_cast<int>(centre - support + 0.5), 0);
    const int count = std::min(static_cast<int>(centre + support + 0.5), in) - first;
    double sum = 0;
    for (int t = 0; t < count; ++t) {
      weights[t] = Cubic((t + first - centre + 0.5) * shrink);
      sum += weights[t];
    }
    filter.first[i] = first, filter.count[i] = count;
    for (int t = 0; t < count; ++t) {
      const double share = sum != 0.0 ? weights[t] / sum : weights[t];
      const double fixed = share * (1 << kFilterFractionBits);
      filter.weights[static_cast<size_t>(i) * widest + t] = static_cast<int32_t>(fixed < 0 ? fixed - 0.5 : fixed + 0.5);
    }
  }
  return filter;
}

}  // namespace deepencoder
