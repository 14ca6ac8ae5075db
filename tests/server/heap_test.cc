#include "server/heap.h"

#include <gtest/gtest.h>
#include <jemalloc/jemalloc.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace deepencoder {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

template <typename Value>
Value Setting(const char* name) {
  Value value{};
  size_t size = sizeof(value);
  EXPECT_EQ(mallctl(name, &value, &size, nullptr, 0), 0) << name;
  return value;
}

struct Memory {
  size_t addresses, resident;
};

Memory Taken() {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  std::ifstream file("/proc/self/statm");
  size_t addresses = 0, resident = 0;
  file >> addresses >> resident;
  return {addresses * page, resident * page};
}

size_t Resident() { return Taken().resident; }

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
  all.reserve(kCount);
  for (int i = 0; i < kCount; ++i) all.push_back(Block(kMiB / 2));
  for (int i = 9; i < kCount; i += 10) stay->push_back(std::move(all[i]));
}

// Whether `holds` comes true before a time that no machine needs.
bool Becomes(const std::function<bool()>& holds) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (!holds()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return true;
}

TEST(Heap, IsJemallocsForMallocAndNew) {
  const auto allocated = [] { return Setting<uint64_t>("thread.allocated"); };
  uint64_t before = allocated();
  const auto block = Block(kMiB);
  EXPECT_GE(allocated(), before + kMiB);
  before = allocated();
  char* const text = strndup(block.get(), kMiB);  // the C library's own call
  EXPECT_GE(allocated(), before + 1);
  free(text);
}

TEST(Heap, HasTheSettingsThatAreCompiledIn) {
  ASSERT_EQ(getenv("MALLOC_CONF"), nullptr) << "which overrides them";
  EXPECT_TRUE(Setting<bool>("background_thread"));
  EXPECT_EQ(Setting<ssize_t>("arenas.muzzy_decay_ms"), 0);
  EXPECT_EQ(Setting<size_t>("opt.oversize_threshold"), 0u);
}

TEST(Heap, MemoryBetweenBlocksThatStayGoesBackByItself) {
  const size_t before = Resident();
  Scatter();
  EXPECT_TRUE(Becomes([&] { return Resident() < before + 30 * kMiB; }))
      << before / kMiB << " MiB before, " << Resident() / kMiB << " now";
}

TEST(Heap, LargeBlocksGoBackByThemselves) {
  const size_t before = Resident();
  Block(100 * kMiB).reset();
  EXPECT_TRUE(Becomes([&] { return Resident() < before + 10 * kMiB; }))
      << before / kMiB << " MiB before, " << Resident() / kMiB << " now";
}

// In this program, started again with a decode worker's settings: there nothing goes back by itself.
TEST(DecodeHeap, DISABLED_GivesBackWhatIsFreeWhenAsked) {
  const Memory before = Taken();
  Scatter();
  TrimHeap(/*kept=*/0);
  EXPECT_LT(Taken().resident, before.resident + 30 * kMiB);
  EXPECT_LT(Taken().addresses, before.addresses + 30 * kMiB);
}

TEST(DecodeHeap, GivesBackWhatIsFreeWhenAsked) {
  std::string settings = kDecodeHeap;
  char* const environment[] = {settings.data(), nullptr};
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // jemalloc has a thread
  EXPECT_EXIT(execle("/proc/self/exe", "heap_test", "--gtest_also_run_disabled_tests",
                     "--gtest_filter=DecodeHeap.DISABLED_*", nullptr, environment),
              testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace deepencoder
