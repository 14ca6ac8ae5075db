// How much memory this process may still take.
#pragma once

#include <cstddef>
#include <string>

namespace deepencoder::cpu {

// Bytes that can be allocated before the machine swaps or somebody is killed: the least of the kernel's
// MemAvailable, what the limits of the process' control groups (v1 or v2) leave, and what RLIMIT_AS leaves.
// SIZE_MAX if none of them can be read. `root` stands before /proc and /sys; tests give their own.
size_t FreeHostMemory(const std::string& root = "");

}  // namespace deepencoder::cpu
