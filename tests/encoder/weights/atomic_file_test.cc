#include "encoder/weights/atomic_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <filesystem>
#include <string>
#include <vector>

#include "encoder/weights/synthetic.h"
#include "tests/encoder/weights/test_files.h"

namespace deepencoder {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::vector<std::string> Names(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    names.push_back(entry.path().filename().string());
  }
  return names;
}

TEST(AtomicFileTest, AppearsOnCommitAlone) {
  const TemporaryFolder folder;
  const std::string path = folder.File("a");
  WriteFile(path, "before");
  {
    auto file = AtomicFile::Create(path);
    ASSERT_TRUE(file.ok()) << file.status();
    EXPECT_TRUE((*file)->WriteAt(4, "more", 4).ok());
    EXPECT_TRUE((*file)->WriteAt(0, "some", 4).ok());
    EXPECT_EQ(ReadFile(path), "before");
    EXPECT_TRUE((*file)->Commit().ok());
  }
  EXPECT_EQ(ReadFile(path), "somemore");
  EXPECT_THAT(Names(folder.path()), ElementsAre("a"));
}

TEST(AtomicFileTest, LeavesNothingWithoutCommit) {
  const TemporaryFolder folder;
  {
    auto file = AtomicFile::Create(folder.File("a"));
    ASSERT_TRUE(file.ok()) << file.status();
    EXPECT_TRUE((*file)->WriteAt(0, "some", 4).ok());
  }
  EXPECT_THAT(Names(folder.path()), IsEmpty());
}

TEST(AtomicFileTest, NamesTheFolderThatIsNotThere) {
  const auto file = AtomicFile::Create("/nowhere/at/all/a");
  EXPECT_EQ(file.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(file.status().message()), testing::HasSubstr("/nowhere/at/all/a"));
}

// A limit on file sizes stands for a full disk: both fail the reservation and the write.
TEST(AtomicFileDeathTest, FullDiskIsAnErrorAndLeavesNothing) {
  const TemporaryFolder folder;
  const auto with_limit = [&] {
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{4096, 4096};
    setrlimit(RLIMIT_FSIZE, &limit);
    {
      auto file = AtomicFile::Create(folder.File("a"));
      if (!file.ok()) std::exit(1);
      if (!absl::IsResourceExhausted((*file)->Reserve(8192))) std::exit(2);
      const std::vector<char> data(8192);
      if (!absl::IsResourceExhausted((*file)->WriteAt(0, data.data(), data.size()))) std::exit(3);
    }
    if (!absl::IsResourceExhausted(
            WriteSyntheticCheckpoint(folder.path(), {.sam_depth = 1, .clip_layers = 1}))) {
      std::exit(4);
    }
    std::exit(Names(folder.path()).empty() ? 0 : 5);
  };
  EXPECT_EXIT(with_limit(), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace deepencoder
