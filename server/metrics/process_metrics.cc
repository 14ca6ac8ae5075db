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
std::optional<double> Uptime() {
  std::ifstream file("/proc/uptime");
  double seconds = 0;
  if (!(file >> seconds)) return std::nullopt;
  return seconds;
}

// Seconds from the machine's boot to the process's start.
double StartOf(const ProcessStat& stat) {
  return static_cast<double>(stat.start_ticks) / TicksPerSecond();
}

std::optional<int64_t> CountOpenFiles() {
  std::error_code error;
  std::filesystem::directory_iterator entry("/proc/self/fd", error);
  int64_t count = -1;  // the iterator itself has one open
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) ++count;
  if (error) return std::nullopt;
  return count;
}

double Now() {
  const auto since_epoch = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration<double>(since_epoch).count();
}

}  // namespace

double ProcessAge() {
  const std::optional<ProcessStat> stat = ReadStat();
  const std::optional<double> uptime = Uptime();
  return stat && uptime ? *uptime - StartOf(*stat) : 0;
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
    if (const std::optional<double> uptime = Uptime()) {
      add(MetricId::kProcessStart, Now() - *uptime + StartOf(*stat));
    }
  }
  if (const std::optional<int64_t> open = CountOpenFiles()) {
    add(MetricId::kProcessFds, static_cast<double>(*open));
  }
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    add(MetricId::kProcessMaxFds, static_cast<double>(limit.rlim_cur));
  }
  return families;
}

}  // namespace deepencoder
