#include "client/bench_report.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>

#include "absl/strings/str_cat.h"

namespace deepencoder::client {
namespace {

// Fewest samples of which the percentile is not just the largest.
constexpr int64_t kSamplesForP99 = 100, kSamplesForP999 = 1000;
constexpr double kFewChange = 0.05;  // share from which a change is coloured

__attribute__((format(printf, 1, 2))) std::string Format(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  char text[512];
  std::vsnprintf(text, sizeof(text), format, arguments);
  va_end(arguments);
  return text;
}

double Ms(double seconds) { return seconds * 1e3; }

std::string PaceNumber(const Pace& pace) {
  return pace.concurrency > 0 ? Format("%d", pace.concurrency) : Format("%g", pace.rate);
}

bool OpenLoop(const BenchResult& result) {
  return !result.points.empty() && result.points.front().pace.concurrency == 0;
}

std::string StageTable(const BenchResult& result, const Style& style) {
  std::string header = Format("%11s", OpenLoop(result) ? "rate" : "concurrency");
  for (const std::string_view stage : kStages) {
    header += Format(" %9.*s", static_cast<int>(stage.size()), stage.data());
  }
  std::string text =
      "\nWhere the time goes, mean ms an image (server: these and waiting for a "
      "decoder;\noutside: network and client)\n" +
      style.Bold(header) + "\n";
  for (const BenchPoint& point : result.points) {
    text += Format("%11s", PaceNumber(point.pace).c_str());
    for (const Distribution& stage : point.stages) text += Format(" %9.2f", Ms(stage.mean));
    text += "\n";
  }
  return text;
}

std::string ModeTable(const BenchResult& result, const Style& style) {
  const bool several = std::any_of(result.points.begin(), result.points.end(),
                                   [](const auto& p) { return p.latency_by_mode.size() > 1; });
  if (!several) return "";
  std::string text =
      "\nLatency by mode, ms\n" +
      style.Bold(Format("%11s %-8s %9s %9s %9s %9s", OpenLoop(result) ? "rate" : "concurrency",
                        "mode", "images", "p50", "p90", "p99")) +
      "\n";
  for (const BenchPoint& point : result.points) {
    for (const auto& [mode, latency] : point.latency_by_mode) {
      text += Format("%11s %-8s %9lld %9.2f %9.2f %9.2f\n", PaceNumber(point.pace).c_str(),
                     mode.c_str(), static_cast<long long>(latency.count), Ms(latency.p50),
                     Ms(latency.p90), Ms(latency.p99));
    }
  }
  return text;
}

std::string Bytes(uint64_t bytes) {
  const double mega = static_cast<double>(bytes) / 1e6;
  return mega < 1000 ? Format("%.1f MB", mega) : Format("%.2f GB", mega / 1e3);
}

// B's change against A's in per cent, green or red where it matters.
std::string Change(double a, double b, bool more_is_better, const Style& style) {
  if (a <= 0) return Format("%9s", "-");
  const double share = b / a - 1;
  const std::string text = Format("%+8.1f%%", share * 100);
  if (std::abs(share) < kFewChange) return text;
  return (share > 0) == more_is_better ? style.Good(text) : style.Bad(text);
}

std::string Different(const char* what, const std::string& a, const std::string& b,
                      const Style& style) {
  if (a == b) return "";
  return absl::StrCat(style.Bad("not the same "), what, ": A ", a, "; B ", b, "\n");
}

}  // namespace

std::string Style::Bold(const std::string& text) const {
  return colours ? "\x1b[1m" + text + "\x1b[0m" : text;
}
std::string Style::Good(const std::string& text) const {
  return colours ? "\x1b[32m" + text + "\x1b[0m" : text;
}
std::string Style::Bad(const std::string& text) const {
  return colours ? "\x1b[31m" + text + "\x1b[0m" : text;
}

std::string HeadText(const BenchResult& result, const Style& style) {
  return absl::StrCat(style.Bold(result.server), "  ", result.model, " on ", result.device,
                      ", server ", result.version, " (", result.commit, ")",
                      result.synthetic ? "  SYNTHETIC weights" : "", "\n", result.images,
                      "; modes ", result.mix, "; ", result.dtype, "; ", result.limits, "\n\n");
}

std::string PointHeader(bool open_loop, const Style& style) {
  return style.Bold(Format("%11s %9s %10s %9s %9s %9s %9s %9s %7s",
                           open_loop ? "rate" : "concurrency", "images/s", "tokens/s", "p50 ms",
                           "p90 ms", "p99 ms", "p99.9 ms", "max ms", "errors")) +
         "\n";
}

std::string PointLine(const BenchPoint& point, const Style& style) {
  const Distribution& latency = point.latency;
  const std::string errors = Format("%7lld", static_cast<long long>(point.failed()));
  return Format("%11s %9.2f %10.0f %9.2f %9.2f %9.2f %9.2f %9.2f ", PaceNumber(point.pace).c_str(),
                point.images_per_second, point.tokens_per_second, Ms(latency.p50), Ms(latency.p90),
                Ms(latency.p99), Ms(latency.p999), Ms(latency.max)) +
         (point.failed() > 0 ? style.Bad(errors) : errors) + "\n";
}

std::string DetailText(const BenchResult& result, const Style& style) {
  std::string text = StageTable(result, style) + ModeTable(result, style);
  uint64_t sent = 0, received = 0;
  double seconds = 0;
  int64_t fewest = INT64_MAX;
  std::map<std::string, int64_t> errors;
  std::string unsent;
  for (const BenchPoint& point : result.points) {
    sent += point.bytes_sent;
    received += point.bytes_received;
    seconds += point.seconds;
    fewest = std::min(fewest, point.images);
    for (const auto& [code, count] : point.errors) errors[code] += count;
    if (point.unsent > 0) {
      absl::StrAppend(&unsent, style.Bad("overloaded"), " at ", PaceText(point.pace), ": ",
                      point.unsent,
                      " requests were due and never sent, since too many were under way: "
                      "latencies are lower bounds\n");
    }
  }
  absl::StrAppend(&text, "\n", Bytes(sent), " of images sent, ", Bytes(received),
                  " of rows received in ", Format("%.1f s", seconds), "\n");
  for (const auto& [code, count] : errors) {
    absl::StrAppend(&text, style.Bad(code), ": ", count, " requests\n");
  }
  text += unsent;
  if (fewest < kSamplesForP99) {
    absl::StrAppend(&text, "fewer than ", kSamplesForP99,
                    " images at a point: p99 is the slowest of them (see --duration, --count)\n");
  } else if (fewest < kSamplesForP999) {
    absl::StrAppend(&text, "fewer than ", kSamplesForP999,
                    " images at a point: p99.9 is the slowest of them\n");
  }
  return text;
}

Comparison Compare(const BenchResult& a, const BenchResult& b, const Style& style) {
  Comparison result;
  result.text = absl::StrCat(style.Bold("A"), "  ", a.model, " on ", a.device, ", server ",
                             a.version, " (", a.commit, ")\n", style.Bold("B"), "  ", b.model,
                             " on ", b.device, ", server ", b.version, " (", b.commit, ")\n");
  result.text += Different("images", a.images, b.images, style);
  result.text += Different("modes", a.mix, b.mix, style);
  result.text += Different("type", a.dtype, b.dtype, style);
  result.text += Different("device", a.device, b.device, style);
  result.text += Different("limits", a.limits, b.limits, style);
  result.text += "\n" +
                 style.Bold(Format("%-16s %9s %9s %9s  %9s %9s %9s  %9s %9s %9s", "", "images/s",
                                   "", "", "p50 ms", "", "", "p99 ms", "", "")) +
                 "\n" +
                 style.Bold(Format("%-16s %9s %9s %9s  %9s %9s %9s  %9s %9s %9s", "", "A", "B",
                                   "change", "A", "B", "change", "A", "B", "change")) +
                 "\n";
  for (const BenchPoint& before : a.points) {
    const auto after = std::find_if(b.points.begin(), b.points.end(), [&](const BenchPoint& p) {
      return PaceText(p.pace) == PaceText(before.pace);
    });
    if (after == b.points.end()) continue;
    ++result.points;
    const double x = before.images_per_second, y = after->images_per_second;
    const Distribution &p = before.latency, &q = after->latency;
    result.text += Format("%-16s %9.2f %9.2f ", PaceText(before.pace).c_str(), x, y) +
                   Change(x, y, true, style) + Format("  %9.2f %9.2f ", Ms(p.p50), Ms(q.p50)) +
                   Change(p.p50, q.p50, false, style) +
                   Format("  %9.2f %9.2f ", Ms(p.p99), Ms(q.p99)) +
                   Change(p.p99, q.p99, false, style) + "\n";
    if (x > 0) result.worst_loss = std::max(result.worst_loss, 1 - y / x);
    if (p.p99 > 0) result.worst_growth = std::max(result.worst_growth, q.p99 / p.p99 - 1);
  }
  if (result.points == 0) result.text += "no concurrency or rate that both have\n";
  return result;
}

}  // namespace deepencoder::client
