#include "encoder/cpu/host_memory.h"

#include <gtest/gtest.h>

#include <limits>

#include "tests/encoder/base/system_files.h"

namespace deepencoder::cpu {
namespace {

constexpr size_t kGib = size_t{1} << 30;

using HostMemoryTest = SystemFilesTest;

TEST_F(HostMemoryTest, NothingIsKnownWithoutFiles) {
  EXPECT_EQ(FreeHostMemory(root_), std::numeric_limits<size_t>::max());
}

TEST_F(HostMemoryTest, IsWhatTheKernelCallsAvailable) {
  Write("/proc/meminfo", "MemTotal: 9 kB\nMemFree: 1 kB\nMemAvailable:    4194304 kB\n");
  EXPECT_EQ(FreeHostMemory(root_), 4 * kGib);
}

TEST_F(HostMemoryTest, IsWhatTheTightestGroupLeaves) {
  Write("/proc/meminfo", "MemAvailable: 67108864 kB\n");
  Write("/proc/self/cgroup", "4:memory:/old\n0::/pod/container\n");
  Write("/sys/fs/cgroup/pod/memory.max", std::to_string(8 * kGib) + "\n");
  Write("/sys/fs/cgroup/pod/memory.current", std::to_string(5 * kGib) + "\n");
  Write("/sys/fs/cgroup/pod/container/memory.max", "max\n");
  Write("/sys/fs/cgroup/pod/container/memory.current", std::to_string(4 * kGib) + "\n");
  EXPECT_EQ(FreeHostMemory(root_), 3 * kGib);
  // Pages of files go when they must.
  Write("/sys/fs/cgroup/pod/memory.stat",
        "anon 1\ninactive_file " + std::to_string(2 * kGib) + "\n");
  EXPECT_EQ(FreeHostMemory(root_), 5 * kGib);
}

TEST_F(HostMemoryTest, IsTheContainersOwnGroupSeenAsTheRoot) {
  Write("/proc/self/cgroup", "0::/\n");
  Write("/sys/fs/cgroup/memory.max", std::to_string(2 * kGib) + "\n");
  Write("/sys/fs/cgroup/memory.current", std::to_string(3 * kGib) + "\n");
  EXPECT_EQ(FreeHostMemory(root_), 0);
}

TEST_F(HostMemoryTest, IsWhatAGroupOfVersion1Leaves) {
  Write("/proc/meminfo", "MemAvailable: 67108864 kB\n");
  Write("/proc/self/cgroup", "4:hugetlb,memory:/docker/0123\n0::/\n");
  Write("/sys/fs/cgroup/memory/docker/0123/memory.limit_in_bytes", std::to_string(8 * kGib));
  Write("/sys/fs/cgroup/memory/docker/0123/memory.usage_in_bytes", std::to_string(5 * kGib));
  Write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712");  // none
  Write("/sys/fs/cgroup/memory/memory.usage_in_bytes", std::to_string(40 * kGib));
  EXPECT_EQ(FreeHostMemory(root_), 3 * kGib);
  Write("/sys/fs/cgroup/memory/docker/0123/memory.stat",
        "inactive_file 1\ntotal_inactive_file " + std::to_string(kGib) + "\n");
  EXPECT_EQ(FreeHostMemory(root_), 4 * kGib);
}

TEST(HostMemoryOfThisMachineTest, IsReadable) {
  EXPECT_GT(FreeHostMemory(), 0);
  EXPECT_LT(FreeHostMemory(), std::numeric_limits<size_t>::max());
}

}  // namespace
}  // namespace deepencoder::cpu
