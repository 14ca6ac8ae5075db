#include "encoder/base/processors.h"

#include <gtest/gtest.h>

#include "tests/encoder/base/system_files.h"

namespace deepencoder {
namespace {

using ProcessorsTest = SystemFilesTest;

TEST_F(ProcessorsTest, AreThoseOfTheAffinityWithoutAQuota) {
  EXPECT_EQ(AvailableProcessors(8, root_), 8);
  EXPECT_EQ(AvailableProcessors(0, root_), 1);
  Write("/proc/self/cgroup", "3:cpu,cpuacct:/pod\n0::/pod\n");
  Write("/sys/fs/cgroup/pod/cpu.max", "max 100000\n");
  Write("/sys/fs/cgroup/cpu/pod/cpu.cfs_quota_us", "-1\n");
  Write("/sys/fs/cgroup/cpu/pod/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(AvailableProcessors(8, root_), 8);
}

TEST_F(ProcessorsTest, AreWhatTheTightestGroupAllows) {
  Write("/proc/self/cgroup", "0::/pod/container\n");
  Write("/sys/fs/cgroup/pod/container/cpu.max", "450000 100000\n");
  EXPECT_EQ(AvailableProcessors(8, root_), 5);  // four and a half
  EXPECT_EQ(AvailableProcessors(3, root_), 3);
  Write("/sys/fs/cgroup/pod/cpu.max", "100000 100000\n");
  EXPECT_EQ(AvailableProcessors(8, root_), 1);
  Write("/sys/fs/cgroup/pod/cpu.max", "1000 100000\n");
  EXPECT_EQ(AvailableProcessors(8, root_), 1);
  Write("/sys/fs/cgroup/pod/cpu.max", "100000 0\n");  // nothing the kernel would write
  EXPECT_EQ(AvailableProcessors(8, root_), 5);
}

TEST_F(ProcessorsTest, AreWhatAGroupOfVersion1Allows) {
  Write("/proc/self/cgroup", "3:cpu,cpuacct:/docker/0123\n2:cpuset:/other\n0::/\n");
  Write("/sys/fs/cgroup/cpu/docker/0123/cpu.cfs_quota_us", "250000\n");
  Write("/sys/fs/cgroup/cpu/docker/0123/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(AvailableProcessors(8, root_), 3);
}

TEST_F(ProcessorsTest, AContainersGroupOfVersion1IsMountedAsTheRoot) {
  Write("/proc/self/cgroup", "3:cpu,cpuacct:/docker/0123\n");  // the host's path
  Write("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "200000\n");
  Write("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(AvailableProcessors(8, root_), 2);
}

TEST(ProcessorsOfThisMachineTest, ThereIsOne) { EXPECT_GE(AvailableProcessors(), 1); }

}  // namespace
}  // namespace deepencoder
