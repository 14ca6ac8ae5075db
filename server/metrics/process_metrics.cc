#include "server/metrics/process_metrics.h"

#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <sstream>
#include <string>
#include <system_error>

#include "server/metrics/family.h"

namespace deepencoder {
namespace {

// The fields of /proc/self/stat that are used here; see proc(5).
struct ProcessStat {
  int64_t user_ticks, system_ticks, threads, start_ticks, virtual_bytes, resident_pages;
};

std::optional<ProcessStat> ReadStat() {
  std::ifstream file("/proc/self/stat");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const size_t name_end = text.rfind(')');  // the name may hold anything
  if (name_end == std::string::npos) return std::nullopt;
  std::istringstream fields(text.substr(name_end + 1));
  std::string skipped;
  ProcessStat stat{};
  for (int field = 3; field <= 24; ++field) {  // numbered as in proc(5); 3 follows the name
    switch (field) {
      case 14:
        fields >> stat.user_ticks;
        break;
      case 15:
        fields >> stat.system_ticks;
        break;
      case 20:
        fields >> stat.threads;
        break;
      case 22:
        fields >> stat.start_ticks;
        break;
      case 23:
        fields >> stat.virtual_bytes;
        break;
      case 24:
        fields >> stat.resident_pages;
        break;
      default:
        fields >> skipped;
    }
  }
  if (!fields) return std::nullopt;
  return stat;
}

double TicksPerSecond() { return static_cast<double>(sysconf(_SC_CLK_TCK)); }

// Seconds since the machine's boot.
double Uptime() {
  std::ifstream file("/proc/uptime");
  double seconds = 0;
  file >> seconds;
  return seconds;
}

int64_t CountOpenFiles() {
  std::error_code error;
  const std::filesystem::directory_iterator entries("/proc/self/fd", error);
  if (error) return 0;
  // The iterator itself has one open.
  return std::distance(begin(entries), end(entries)) - 1;
}

double Now() {
  const auto since_epoch = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration<double>(since_epoch).count();
}

}  // namespace

double ProcessAge() {
  const std::optional<ProcessStat> stat = ReadStat();
  return stat ? Uptime() - static_cast<double>(stat->start_ticks) / TicksPerSecond() : 0;
}

std::vector<prometheus::MetricFamily> ProcessMetrics::Collect() const {
  std::vector<prometheus::MetricFamily> families;
  const auto add = [&families](MetricId id, double value) {
    families.push_back(MakeFamily(id));
    AddSample(families.back(), value);
  };
  if (const std::optional<ProcessStat> stat = ReadStat()) {
    const auto ticks = static_cast<double>(stat->user_ticks + stat->system_ticks);
    add(MetricId::kProcessCpu, ticks / TicksPerSecond());
    add(MetricId::kProcessMemory,
        static_cast<double>(stat->resident_pages) * static_cast<double>(sysconf(_SC_PAGESIZE)));
    add(MetricId::kProcessVirtualMemory, static_cast<double>(stat->virtual_bytes));
    add(MetricId::kProcessThreads, static_cast<double>(stat->threads));
    add(MetricId::kProcessStart,
        Now() - Uptime() + static_cast<double>(stat->start_ticks) / TicksPerSecond());
  }
  add(MetricId::kProcessFds, static_cast<double>(CountOpenFiles()));
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    add(MetricId::kProcessMaxFds, static_cast<double>(limit.rlim_cur));
  }
  return families;
}

}  // namespace deepencoder
