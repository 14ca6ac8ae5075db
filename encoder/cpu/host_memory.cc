#include "encoder/cpu/host_memory.h"

#include <sys/resource.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>

namespace deepencoder::cpu {
namespace {

constexpr size_t kUnknown = std::numeric_limits<size_t>::max();

size_t Minus(size_t limit, size_t used) { return limit > used ? limit - used : 0; }

// The number behind `key` in a file of lines "key number ...".
std::optional<size_t> ValueOf(const std::string& path, const std::string& key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string name;
    size_t value = 0;
    if (words >> name >> value && name == key) return value;
  }
  return std::nullopt;
}

// A file that holds one number; nothing for "max".
std::optional<size_t> NumberIn(const std::string& path) {
  std::ifstream file(path);
  size_t value = 0;
  if (file >> value) return value;
  return std::nullopt;
}

size_t FreeOfMachine(const std::string& root) {
  constexpr size_t kKib = 1024;
  const auto available = ValueOf(root + "/proc/meminfo", "MemAvailable:");
  return available ? *available * kKib : kUnknown;
}

// The group's folder below the mount, "/" for the root (and for the own group, seen from a container).
std::string GroupOfProcess(const std::string& root) {
  std::ifstream file(root + "/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("0::")) return line.substr(3);  // version 2's
  }
  return "/";
}

// The least that any group from the process' own to the root leaves. A group's use counts file pages,
// which the kernel takes back when it must.
size_t FreeOfGroups(const std::string& root) {
  size_t free = kUnknown;
  std::string group = GroupOfProcess(root);
  while (true) {
    const std::string folder = root + "/sys/fs/cgroup" + group;
    const auto limit = NumberIn(folder + "/memory.max");
    const auto used = NumberIn(folder + "/memory.current");
    if (limit && used) {
      const size_t files = ValueOf(folder + "/memory.stat", "inactive_file").value_or(0);
      free = std::min(free, Minus(*limit, Minus(*used, files)));
    }
    if (group.empty() || group == "/") return free;
    group.resize(group.rfind('/'));
  }
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
  return std::min({FreeOfMachine(root), FreeOfGroups(root), FreeOfAddressSpace(root)});
}

}  // namespace deepencoder::cpu
