#include "encoder/cpu/host_memory.h"

#include <sys/resource.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <vector>

#include "encoder/base/control_groups.h"

namespace deepencoder::cpu {
namespace {

constexpr size_t kUnknown = std::numeric_limits<size_t>::max();

size_t Minus(size_t limit, size_t used) { return limit > used ? limit - used : 0; }

size_t FreeOfMachine(const std::string& root) {
  constexpr size_t kKib = 1024;
  const auto available = ValueOf(root + "/proc/meminfo", "MemAvailable:");
  return available ? *available * kKib : kUnknown;
}

// How a version of the control groups' interface tells of memory.
struct GroupFiles {
  const char *limit, *used;
  const char* files;  // pages of files in memory.stat, which the kernel takes back when it must
};
constexpr GroupFiles kVersion1 = {"/memory.limit_in_bytes", "/memory.usage_in_bytes",
                                  "total_inactive_file"};
constexpr GroupFiles kVersion2 = {"/memory.max", "/memory.current", "inactive_file"};

// The least that any group from the process' own to the root leaves.
size_t FreeOfGroups(const std::vector<std::string>& folders, const GroupFiles& names) {
  size_t free = kUnknown;
  for (const std::string& folder : folders) {
    const auto limit = NumberIn(folder + names.limit);
    const auto used = NumberIn(folder + names.used);
    if (!limit || !used) continue;
    const size_t files = ValueOf(folder + "/memory.stat", names.files).value_or(0);
    free = std::min(free, Minus(*limit, Minus(*used, files)));
  }
  return free;
}

size_t FreeOfAddressSpace(const std::string& root) {
  constexpr size_t kKib = 1024;
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return kUnknown;
  const auto used = ValueOf(root + "/proc/self/status", "VmSize:");
  return used ? Minus(limit.rlim_cur, *used * kKib) : kUnknown;
}

}  // namespace

size_t FreeHostMemory(const std::string& root) {
  return std::min({FreeOfMachine(root), FreeOfGroups(ControlGroups(root), kVersion2),
                   FreeOfGroups(ControlGroups(root, "memory"), kVersion1),
                   FreeOfAddressSpace(root)});
}

}  // namespace deepencoder::cpu
