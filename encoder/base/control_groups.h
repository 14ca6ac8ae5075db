// The control groups that hold the process to limits, of both versions of the kernel's interface.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace deepencoder {

// Folders of the groups that the process is in: its own first, the root last. In a container the paths that
// the kernel tells may be the host's; of those only the folders that are mounted hold files. `root` stands
// before /proc and /sys: tests give their own.
std::vector<std::string> ControlGroups(const std::string& root);  // version 2
// Of a controller of version 1, such as "memory"; none if it is not there.
std::vector<std::string> ControlGroups(const std::string& root, const std::string& controller);

// A file that begins with a number; nothing for another ("max"), a negative one, or without the file.
std::optional<size_t> NumberIn(const std::string& path);

// The number behind `key` in a file of lines "key number ...".
std::optional<size_t> ValueOf(const std::string& path, const std::string& key);

}  // namespace deepencoder
