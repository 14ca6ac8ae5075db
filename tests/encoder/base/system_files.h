// Files below /proc and /sys for what takes a root to stand before them.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace deepencoder {

// Has a root of its own, empty at first and gone at the end.
class SystemFilesTest : public testing::Test {
 protected:
  SystemFilesTest() { std::filesystem::remove_all(root_); }
  ~SystemFilesTest() override { std::filesystem::remove_all(root_); }

  void Write(const std::string& path, const std::string& text) const {
    std::filesystem::create_directories(std::filesystem::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text;
  }

  const std::string root_ = testing::TempDir() + "system_files." + std::to_string(getpid());
};

}  // namespace deepencoder
