#include "encoder/base/control_groups.h"

#include <fstream>
#include <sstream>

namespace deepencoder {
namespace {

// Of /proc/self/cgroup, whose lines are "number:controllers:path"; version 2's number is 0, without controllers.
std::optional<std::string> PathOfGroup(const std::string& root, const std::string& controller) {
  std::ifstream file(root + "/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const size_t names = line.find(':') + 1, path = line.find(':', names) + 1;
    if (names == 0 || path == 0) continue;
    const std::string controllers = "," + line.substr(names, path - 1 - names) + ",";
    if (controllers.find("," + controller + ",") != std::string::npos) return line.substr(path);
  }
  return std::nullopt;
}

std::vector<std::string> UpToRoot(const std::string& mount, std::string group) {
  std::vector<std::string> folders;
  while (!group.empty() && group != "/") {
    folders.push_back(mount + group);
    group.resize(group.rfind('/'));
  }
  folders.push_back(mount);
  return folders;
}

}  // namespace

std::vector<std::string> ControlGroups(const std::string& root) {
  return UpToRoot(root + "/sys/fs/cgroup", PathOfGroup(root, "").value_or("/"));
}

std::vector<std::string> ControlGroups(const std::string& root, const std::string& controller) {
  const std::optional<std::string> path = PathOfGroup(root, controller);
  if (!path) return {};
  return UpToRoot(root + "/sys/fs/cgroup/" + controller, *path);
}

std::optional<size_t> NumberIn(const std::string& path) {
  std::ifstream file(path);
  if ((file >> std::ws).peek() == '-') return std::nullopt;  // which would wrap around
  size_t value = 0;
  if (file >> value) return value;
  return std::nullopt;
}

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

}  // namespace deepencoder
