#include "encoder/base/processors.h"

#include <sched.h>

#include <algorithm>
#include <fstream>
#include <optional>
#include <thread>

#include "encoder/base/control_groups.h"

namespace deepencoder {
namespace {

// std::thread::hardware_concurrency counts processors that are online, whoever may use them.
int ProcessorsOfAffinity() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return CPU_COUNT(&set);
  return static_cast<int>(std::thread::hardware_concurrency());  // more than a cpu_set_t has
}

int RoundUp(size_t quota, size_t period, int most) {
  if (period == 0 || quota / period >= static_cast<size_t>(most)) return most;
  return static_cast<int>((quota + period - 1) / period);
}

}  // namespace

int AvailableProcessors(int affinity, const std::string& root) {
  int available = affinity;
  for (const std::string& folder : ControlGroups(root)) {
    std::ifstream file(folder + "/cpu.max");  // "QUOTA PERIOD" in microseconds, or "max PERIOD"
    size_t quota = 0, period = 0;
    if (file >> quota >> period) available = RoundUp(quota, period, available);
  }
  for (const std::string& folder : ControlGroups(root, "cpu")) {
    const auto quota = NumberIn(folder + "/cpu.cfs_quota_us");  // -1: none
    const auto period = NumberIn(folder + "/cpu.cfs_period_us");
    if (quota && period) available = RoundUp(*quota, *period, available);
  }
  return std::max(1, available);
}

int AvailableProcessors() {
  static const int available = AvailableProcessors(ProcessorsOfAffinity(), "");
  return available;
}

}  // namespace deepencoder
