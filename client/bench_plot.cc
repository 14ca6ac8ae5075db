#include "client/bench_plot.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include "absl/strings/str_cat.h"

namespace deepencoder::client {
namespace {

// Pixels.
constexpr double kWidth = 860, kHeight = 520;
constexpr double kLeft = 78, kRight = 34, kTop = 86, kBottom = 66;

constexpr double kLogFrom = 15;  // the ratio of latencies from which their axis is logarithmic

// Told apart by people with any colour vision (Okabe and Ito's palette).
constexpr std::array<const char*, 5> kColours = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                                 "#56b4e9"};

std::string Number(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.1f", value);
  return text;
}
std::string Label(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%g", value);
  return text;
}

std::string Escape(const std::string& text) {
  std::string escaped;
  for (const char c : text) {
    switch (c) {
      case '&':
        escaped += "&amp;";
        break;
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      case '"':
        escaped += "&quot;";
        break;
      default:
        escaped += c;
    }
  }
  return escaped;
}

std::string Text(double x, double y, const std::string& text, const std::string& attributes = "") {
  return absl::StrCat("<text x=\"", Number(x), "\" y=\"", Number(y), "\" ", attributes, ">",
                      Escape(text), "</text>\n");
}

std::string Line(double x0, double y0, double x1, double y1, const std::string& attributes) {
  return absl::StrCat("<line x1=\"", Number(x0), "\" y1=\"", Number(y0), "\" x2=\"", Number(x1),
                      "\" y2=\"", Number(y1), "\" ", attributes, "/>\n");
}

// An axis: values to pixels.
struct Axis {
  std::vector<double> ticks;  // the first and the last are its ends
  bool logarithmic = false;
  double from = 0, to = 0;  // pixels of the ends

  double Place(double value) const {
    const auto scaled = [this](double v) { return logarithmic ? std::log10(v) : v; };
    const double first = scaled(ticks.front()), last = scaled(ticks.back());
    return from + (scaled(value) - first) / (last - first) * (to - from);
  }
};

struct Range {
  double throughput = 0;                   // largest
  double fastest = INFINITY, slowest = 0;  // latency, ms
};

Range RangeOf(const std::vector<PlotSeries>& series) {
  Range range;
  for (const PlotSeries& one : series) {
    for (const BenchPoint& point : one.result->points) {
      if (point.images == 0) continue;
      range.throughput = std::max(range.throughput, point.images_per_second);
      range.fastest = std::min(range.fastest, point.latency.p50 * 1e3);
      range.slowest = std::max(range.slowest, point.latency.p99 * 1e3);
    }
  }
  return range;
}

std::string Grid(const Axis& x, const Axis& y) {
  std::string svg;
  for (const double tick : x.ticks) {
    const double at = x.Place(tick);
    svg += Line(at, y.from, at, y.to, "stroke=\"#e6e6e6\"");
    svg += Text(at, y.from + 20, Label(tick), "text-anchor=\"middle\"");
  }
  for (const double tick : y.ticks) {
    const double at = y.Place(tick);
    svg += Line(x.from, at, x.to, at, "stroke=\"#e6e6e6\"");
    svg += Text(x.from - 9, at + 4.5, Label(tick), "text-anchor=\"end\"");
  }
  svg += Line(x.from, y.from, x.to, y.from, "stroke=\"#444444\"");
  svg += Line(x.from, y.from, x.from, y.to, "stroke=\"#444444\"");
  svg += Text((x.from + x.to) / 2, kHeight - 16, "throughput, images/s",
              "text-anchor=\"middle\" class=\"axis\"");
  const double middle = (y.from + y.to) / 2;
  svg += Text(22, middle, y.logarithmic ? "latency, ms (logarithmic)" : "latency, ms",
              absl::StrCat("text-anchor=\"middle\" class=\"axis\" transform=\"rotate(-90 22 ",
                           Number(middle), ")\""));
  return svg;
}

std::string Polyline(const std::vector<const BenchPoint*>& points, double Distribution::*member,
                     const Axis& x, const Axis& y, const char* colour, bool dashed) {
  std::string places, marks;
  for (const BenchPoint* point : points) {
    const std::string at_x = Number(x.Place(point->images_per_second));
    const std::string at_y = Number(y.Place(point->latency.*member * 1e3));
    absl::StrAppend(&places, places.empty() ? "" : " ", at_x, ",", at_y);
    absl::StrAppend(&marks, "<circle cx=\"", at_x, "\" cy=\"", at_y, "\" r=\"3.6\" fill=\"",
                    dashed ? "#ffffff" : colour, "\" stroke=\"", colour, "\" stroke-width=\"1.6\">",
                    "<title>", Escape(PaceText(point->pace)), ": ", Label(point->images_per_second),
                    " images/s, ", Label(point->latency.*member * 1e3), " ms</title></circle>\n");
  }
  return absl::StrCat("<polyline points=\"", places, "\" fill=\"none\" stroke=\"", colour,
                      "\" stroke-width=\"2\"", dashed ? " stroke-dasharray=\"6 4\"" : "", "/>\n",
                      marks);
}

// The paces, beside the points of p99; those that would cover the one before are left out.
std::string PaceLabels(const std::vector<const BenchPoint*>& points, const Axis& x, const Axis& y,
                       const char* colour) {
  constexpr double kRoom = 17;
  std::string svg;
  double last_x = -kRoom, last_y = -kRoom;
  for (const BenchPoint* point : points) {
    const double at_x = x.Place(point->images_per_second);
    const double at_y = y.Place(point->latency.p99 * 1e3);
    if (std::hypot(at_x - last_x, at_y - last_y) < kRoom) continue;
    last_x = at_x;
    last_y = at_y;
    const std::string label = point->pace.concurrency > 0 ? std::to_string(point->pace.concurrency)
                                                          : Label(point->pace.rate);
    svg += Text(at_x - 7, at_y - 8, label,
                absl::StrCat("text-anchor=\"end\" class=\"pace\" fill=\"", colour, "\""));
  }
  return svg;
}

std::string Legend(const std::vector<PlotSeries>& series) {
  std::string svg = Text(kLeft, 28, "Latency against throughput", "class=\"title\"");
  const BenchResult& first = *series.front().result;
  svg += Text(kLeft, 47,
              absl::StrCat(first.model, first.synthetic ? " (synthetic weights)" : "", " on ",
                           first.device, ", modes ", first.mix, ", ", first.dtype),
              "class=\"note\"");
  double x = kLeft;
  for (size_t i = 0; i < series.size(); ++i) {
    const std::string paint =
        absl::StrCat("stroke=\"", kColours[i % kColours.size()], "\" stroke-width=\"2\"");
    const std::string& label = series[i].label;
    const std::string prefix = label.empty() ? "" : label + " ";
    svg += Line(x, 65, x + 30, 65, paint);
    svg += Text(x + 36, 69.5, prefix + "p50");
    x += 36 + 7.4 * static_cast<double>(prefix.size() + 3) + 22;
    svg += Line(x, 65, x + 30, 65, paint + " stroke-dasharray=\"6 4\"");
    svg += Text(x + 36, 69.5, prefix + "p99");
    x += 36 + 7.4 * static_cast<double>(prefix.size() + 3) + 22;
  }
  const bool open = !first.points.empty() && first.points.front().pace.concurrency == 0;
  return svg +
         Text(x, 69.5,
              open ? "numbers: requests offered a second (Poisson)" : "numbers: requests under way",
              "class=\"note\"");
}

}  // namespace

std::vector<double> RoundTicks(double max, int count) {
  const double power = std::pow(10, std::floor(std::log10(max / count)));
  double step = 10 * power;
  for (const double factor : {5.0, 2.0, 1.0}) {
    if (factor * power * count >= max) step = factor * power;
  }
  std::vector<double> ticks = {0};
  while (ticks.back() < max) ticks.push_back(step * static_cast<double>(ticks.size()));
  return ticks;
}

std::vector<double> LogTicks(double min, double max) {
  std::vector<double> ticks;
  for (int exponent = static_cast<int>(std::floor(std::log10(min)));; ++exponent) {
    for (const double factor : {1.0, 2.0, 5.0}) {
      const double tick = factor * std::pow(10, exponent);
      if (tick <= min) ticks.clear();
      ticks.push_back(tick);
      if (tick >= max && ticks.size() > 1) return ticks;
    }
  }
}

std::string LatencyPlot(const std::vector<PlotSeries>& series) {
  std::string svg = absl::StrCat(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"", kWidth, "\" height=\"", kHeight,
      "\" viewBox=\"0 0 ", kWidth, " ", kHeight,
      "\" font-family=\"Helvetica, Arial, sans-serif\" font-size=\"13\" fill=\"#333333\">\n"
      "<style>.title{font-size:18px;font-weight:bold}.axis{font-size:14px}"
      ".note{fill:#777777}.pace{font-size:12px}</style>\n"
      "<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n");
  svg += Legend(series);
  const Range range = RangeOf(series);
  if (range.slowest <= 0 || range.throughput <= 0 || range.fastest <= 0) {
    return svg +
           Text(kWidth / 2, kHeight / 2, "no image was answered",
                "text-anchor=\"middle\" class=\"axis\"") +
           "</svg>\n";
  }
  const bool logarithmic = range.slowest > kLogFrom * range.fastest;
  const Axis x{RoundTicks(range.throughput * 1.02, 8), false, kLeft, kWidth - kRight};
  const Axis y{
      logarithmic ? LogTicks(range.fastest, range.slowest) : RoundTicks(range.slowest * 1.05, 7),
      logarithmic, kHeight - kBottom, kTop};
  svg += Grid(x, y);
  for (size_t i = 0; i < series.size(); ++i) {
    const char* colour = kColours[i % kColours.size()];
    std::vector<const BenchPoint*> points;
    for (const BenchPoint& point : series[i].result->points) {
      if (point.images > 0) points.push_back(&point);
    }
    svg += Polyline(points, &Distribution::p99, x, y, colour, true);
    svg += Polyline(points, &Distribution::p50, x, y, colour, false);
    svg += PaceLabels(points, x, y, colour);
  }
  return svg + "</svg>\n";
}

}  // namespace deepencoder::client
