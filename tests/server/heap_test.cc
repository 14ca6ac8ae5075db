#include "server/heap.h"

#include <gtest/gtest.h>
#include <malloc.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <memory>
#include <utility>
#include <vector>

namespace deepencoder {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

size_t Resident() {
  std::ifstream file("/proc/self/statm");
  size_t all = 0, resident = 0;
  file >> all >> resident;
  return resident * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

// Written to, so that the memory is really there, and out of the compiler's sight, so that it is asked for.
[[gnu::noinline]] std::unique_ptr<char[]> Block(size_t bytes) {
  auto block = std::make_unique_for_overwrite<char[]>(bytes);
  std::memset(block.get(), 1, bytes);
  return block;
}

// Takes blocks and frees nine of ten. The others stay to the program's end: no test finds a large hole then.
void Scatter() {
  constexpr int kCount = 300;
  static auto* const stay = new std::vector<std::unique_ptr<char[]>>;
  std::vector<std::unique_ptr<char[]>> all;
  for (int i = 0; i < kCount; ++i) all.push_back(Block(kMiB / 2));
  for (int i = 9; i < kCount; i += 10) stay->push_back(std::move(all[i]));
}

class HeapTest : public testing::Test {
 protected:
  void SetUp() override {
    SetUpHeap();
    malloc_trim(0);  // the large block must not come from the end that an earlier test left
    const size_t mapped = mallinfo2().hblkhd;
    const auto block = Block(kLarge);
    if (mallinfo2().hblkhd < mapped + kLarge) {
      GTEST_SKIP() << "another allocator than glibc's (a sanitizer's)";
    }
  }

  static constexpr size_t kLarge = 12 * kMiB;
};

TEST_F(HeapTest, LargeBlocksAreMappedWhateverWasFreedBefore) {
  Block(16 * kMiB).reset();
  const size_t mapped = mallinfo2().hblkhd;
  const auto block = Block(kLarge);
  EXPECT_GE(mallinfo2().hblkhd, mapped + kLarge);
}

TEST_F(HeapTest, MemoryBetweenBlocksThatStayGoesBack) {
  Scatter();
  const size_t before = Resident();
  TrimHeap();
  EXPECT_LT(Resident() + 100 * kMiB, before);
}

}  // namespace
}  // namespace deepencoder
