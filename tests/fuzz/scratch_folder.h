// A folder of the file system for what is only read through paths.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <filesystem>
#include <iterator>
#include <string>
#include <string_view>

#include "tests/fuzz/fuzz_target.h"

namespace deepencoder::fuzz {

// Made once a process, gone with it.
class ScratchFolder {
 public:
  ScratchFolder() {
    std::string name =
        (std::filesystem::temp_directory_path() / "deepencoder-fuzz-XXXXXX").string();
    Require(mkdtemp(name.data()) != nullptr, "a folder for temporary files can be made");
    path_ = name;
  }
  ~ScratchFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }

  // `size` bytes that begin with `text` and are zeros after it, which take no room.
  std::filesystem::path Write(const std::string& name, std::string_view text, size_t size) const {
    const std::filesystem::path file = path_ / name;
    const int fd = open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    // Never to nothing first: ext4 writes a file that was cut to nothing to the disk when it is closed.
    const bool written = pwrite(fd, text.data(), text.size(), 0) == std::ssize(text) &&
                         ftruncate(fd, std::ssize(text)) == 0 &&
                         ftruncate(fd, static_cast<off_t>(size)) == 0;
    Require(fd >= 0 && written, "a file can be written");
    close(fd);
    return file;
  }

 private:
  std::filesystem::path path_;
};

}  // namespace deepencoder::fuzz
