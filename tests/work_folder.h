// A folder for the files of a test program.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <system_error>

namespace deepencoder {

// This process' own, so that runs beside each other do not meet. Removed when the program ends, however its tests went.
inline const std::string& WorkFolder() {
  static const struct Folder {
    Folder() { std::filesystem::create_directories(path); }
    ~Folder() {
      std::error_code ignored;
      std::filesystem::remove_all(path, ignored);
    }
    std::string path = testing::TempDir() + "deepencoder_test." + std::to_string(getpid());
  } folder;
  return folder.path;
}

}  // namespace deepencoder
