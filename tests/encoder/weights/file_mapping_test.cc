#include "encoder/weights/file_mapping.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <vector>

namespace deepencoder {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

constexpr size_t kBytes = size_t{1} << 20;

class FileMappingTest : public testing::Test {
 protected:
  FileMappingTest() : path_(testing::TempDir() + "file_mapping." + std::to_string(getpid())) {
    Write(path_);
  }
  ~FileMappingTest() override { fs::remove(path_); }

  static void Write(const std::string& path) {
    std::ofstream(path, std::ios::binary) << std::string(kBytes, 'x');
  }
  static size_t Count(const FileMapping& mapping, char value) {
    return static_cast<size_t>(
        std::count(mapping.data(), mapping.data() + mapping.size(), std::byte(value)));
  }

  const std::string path_;
};

TEST_F(FileMappingTest, ShowsTheFile) {
  const auto mapping = FileMapping::Open(path_, 1);
  ASSERT_TRUE(mapping.ok()) << mapping.status();
  EXPECT_EQ((*mapping)->size(), kBytes);
  EXPECT_EQ(Count(**mapping, 'x'), kBytes);
  EXPECT_TRUE((*mapping)->CheckUnchanged().ok());
}

TEST_F(FileMappingTest, RefusesWhatIsNoFileOrTooShort) {
  EXPECT_EQ(FileMapping::Open(path_ + ".no", 1).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(FileMapping::Open("/", 1).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(FileMapping::Open(path_, kBytes + 1).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(FileMappingTest, ACutFileReadsAsZerosAndIsNoticed) {
  const auto mapping = FileMapping::Open(path_, 1);
  ASSERT_TRUE(mapping.ok());
  fs::resize_file(path_, kBytes / 4);
  EXPECT_EQ(Count(**mapping, 'x'), kBytes / 4);
  EXPECT_EQ(Count(**mapping, '\0'), kBytes - kBytes / 4);
  EXPECT_THAT(std::string((*mapping)->CheckUnchanged().message()), HasSubstr("changed while"));
  // Grown again to its old size, it has lost what was in between.
  fs::resize_file(path_, kBytes);
  EXPECT_FALSE((*mapping)->CheckUnchanged().ok());
}

TEST_F(FileMappingTest, AWriteIsNoticedAndARenameIsNone) {
  const auto mapping = FileMapping::Open(path_, 1);
  ASSERT_TRUE(mapping.ok());
  Write(path_ + ".new");
  fs::rename(path_ + ".new", path_);
  EXPECT_TRUE((*mapping)->CheckUnchanged().ok());
  const auto renamed = FileMapping::Open(path_, 1);
  ASSERT_TRUE(renamed.ok());
  // To a time of its own: file systems' clocks are coarse.
  fs::last_write_time(path_, fs::last_write_time(path_) + std::chrono::seconds(1));
  EXPECT_FALSE((*renamed)->CheckUnchanged().ok());
  EXPECT_TRUE((*mapping)->CheckUnchanged().ok());
}

TEST_F(FileMappingTest, ProtectsManyAtATimeAndPlacesAreUsedAgain) {
  for (int round = 0; round < 2; ++round) {
    std::vector<std::unique_ptr<FileMapping>> mappings;
    for (int i = 0; i < FileMapping::kMaxMappings; ++i) {
      auto mapping = FileMapping::Open(path_, 1);
      ASSERT_TRUE(mapping.ok()) << mapping.status();
      mappings.push_back(*std::move(mapping));
    }
    // One more would not be protected.
    const absl::Status status = FileMapping::Open(path_, 1).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("256 files are mapped already"));
    fs::resize_file(path_, 0);
    for (const auto& mapping : mappings) EXPECT_EQ(Count(*mapping, '\0'), kBytes);
    Write(path_);
  }
}

TEST_F(FileMappingTest, OtherBusErrorsStillEndTheProcess) {
  EXPECT_EXIT(
      {
        const auto mapping = FileMapping::Open(path_, 1);
        const int fd = open(path_.c_str(), O_RDWR);
        auto* data =
            static_cast<volatile char*>(mmap(nullptr, kBytes, PROT_READ, MAP_SHARED, fd, 0));
        if (ftruncate(fd, 0) == 0) _exit(data[kBytes - 1]);
        _exit(0);
      },
      [](int status) { return !WIFEXITED(status) || WEXITSTATUS(status) != 0; }, "");
}

}  // namespace
}  // namespace deepencoder
