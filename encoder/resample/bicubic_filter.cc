#include "encoder/resample/bicubic_filter.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace deepencoder {
namespace {

// Keys' cubic with a = -0.5; zero from 2 on.
double Bicubic(double x) {
  constexpr double a = -0.5;
  x = std::abs(x);
  if (x < 1.0) return ((a + 2.0) * x - (a + 3.0)) * x * x + 1;
  if (x < 2.0) return (((x - 5) * x + 8) * x - 4) * a;
  return 0.0;
}

int32_t ToFixed(double weight) {  // half away from zero
  return static_cast<int32_t>((weight < 0 ? -0.5 : 0.5) + weight * (1 << kFilterFractionBits));
}

}  // namespace

AxisWeights BicubicWeights(int in, int out, int index) {
  constexpr double kSupport = 2.0;
  const double scale = static_cast<double>(in) / out;
  const double stretch = std::max(scale, 1.0);
  const double support = kSupport * stretch, shrink = 1.0 / stretch;
  const double center = (index + 0.5) * scale;
  // Rounded as Pillow does, by adding a half and cutting off.
  // NOLINTBEGIN(bugprone-incorrect-roundings)
  const int first = std::max(static_cast<int>(center - support + 0.5), 0);
  const int end = std::min(static_cast<int>(center + support + 0.5), in);
  // NOLINTEND(bugprone-incorrect-roundings)

  std::vector<double> weights(static_cast<size_t>(end - first));
  double sum = 0;
  for (size_t i = 0; i < weights.size(); ++i) {
    weights[i] = Bicubic((static_cast<double>(i) + first - center + 0.5) * shrink);
    sum += weights[i];
  }
  AxisWeights result{first, std::vector<int32_t>(weights.size())};
  for (size_t i = 0; i < weights.size(); ++i) {
    result.weights[i] = ToFixed(sum != 0.0 ? weights[i] / sum : weights[i]);
  }
  return result;
}

BicubicFilter MakeBicubicFilter(int in, int out) {
  BicubicFilter filter;
  filter.in = in, filter.out = out;
  std::vector<AxisWeights> outputs;
  for (int i = 0; i < out; ++i) {
    outputs.push_back(BicubicWeights(in, out, i));
    filter.taps = std::max(filter.taps, static_cast<int>(outputs.back().weights.size()));
  }
  filter.weights.assign(static_cast<size_t>(out) * filter.taps, 0);
  for (size_t i = 0; i < outputs.size(); ++i) {
    filter.first.push_back(outputs[i].first);
    filter.count.push_back(static_cast<int32_t>(outputs[i].weights.size()));
    std::copy(outputs[i].weights.begin(), outputs[i].weights.end(),
              filter.weights.begin() + static_cast<ptrdiff_t>(i * filter.taps));
  }
  return filter;
}

}  // namespace deepencoder
