// SPDX-License-Identifier: Apache-2.0
// Memory limits read from files like those of hosts and containers.
#include "node/memory_limits.hpp"

#include <gmock/gmock.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>

#include "../support/file_size_limit.hpp"

namespace kolo::internal::node {
namespace {

constexpr std::size_t mib = std::size_t{1} << 20;
constexpr std::size_t unlimited = std::numeric_limits<std::size_t>::max();

class MemoryLimitsTest : public testing::Test {
 protected:
  MemoryLimitsTest() {
    std::string name = testing::TempDir() + "kolo_memory_limits_XXXXXX";
    root_ = ::mkdtemp(name.data());
    write("proc/meminfo",
          "MemTotal:       16777216 kB\nMemFree:          100000 kB\nMemAvailable:    8388608 kB\n"
          "HugePages_Total:       0\nSwapTotal:             0 kB\n");
  }
  ~MemoryLimitsTest() override { std::filesystem::remove_all(root_); }

  void write(const std::string& path, const std::string& text) const {
    const std::filesystem::path whole = std::filesystem::path(root_) / path;
    std::filesystem::create_directories(whole.parent_path());
    std::ofstream(whole) << text;
  }

  void expect_available(std::size_t bytes, const std::string& limited_by) const {
    const AvailableMemory available = available_memory(root_);
    EXPECT_EQ(available.bytes, bytes);
    EXPECT_THAT(available.limited_by, testing::EndsWith(limited_by));
  }

  std::string root_;
};

TEST_F(MemoryLimitsTest, AHostHasWhatItCanGive) {
  expect_available(8192 * mib, "the host");
  EXPECT_EQ(memory_limits(root_).memory, 16384 * mib);
}

TEST_F(MemoryLimitsTest, WithoutFilesNothingIsKnown) {
  EXPECT_EQ(available_memory(root_ + "/none").bytes, unlimited);
  EXPECT_EQ(memory_limits(root_ + "/none").memory, unlimited);
}

TEST_F(MemoryLimitsTest, AGroupOfVersion2MayHaveLess) {
  write("proc/self/cgroup", "0::/system.slice/job.scope\n");
  write("sys/fs/cgroup/system.slice/job.scope/memory.max", "1073741824\n");
  write("sys/fs/cgroup/system.slice/job.scope/memory.current", "734003200\n");
  expect_available(324 * mib, "/system.slice/job.scope/memory.max");
  EXPECT_EQ(memory_limits(root_).memory, 1024 * mib);
  // The kernel drops such pages before it ends a process.
  write("sys/fs/cgroup/system.slice/job.scope/memory.stat",
        "anon 1000\nfile 209715200\nactive_file 52428800\ninactive_file 104857600\n"
        "slab_reclaimable 1048576\n");
  expect_available(475 * mib, "/system.slice/job.scope/memory.max");
}

TEST_F(MemoryLimitsTest, TheTightestOfAllGroupsAboveCounts) {
  write("proc/self/cgroup", "0::/slurm/job_7/step_0\n");
  write("sys/fs/cgroup/slurm/job_7/step_0/memory.max", "max\n");
  write("sys/fs/cgroup/slurm/job_7/step_0/memory.current", "1048576\n");
  write("sys/fs/cgroup/slurm/job_7/memory.max", "2147483648\n");
  write("sys/fs/cgroup/slurm/job_7/memory.current", "2147483648\n");
  write("sys/fs/cgroup/slurm/memory.max", "4294967296\n");
  write("sys/fs/cgroup/slurm/memory.current", "2148532224\n");
  expect_available(0, "/slurm/job_7/memory.max");
  EXPECT_EQ(memory_limits(root_).memory, 2048 * mib);
}

TEST_F(MemoryLimitsTest, AContainerSeesItsOwnGroupAtTheRoot) {
  write("proc/self/cgroup", "0::/\n");
  write("sys/fs/cgroup/memory.max", "536870912\n");
  write("sys/fs/cgroup/memory.current", "0\n");
  expect_available(512 * mib, "/sys/fs/cgroup/memory.max");
}

TEST_F(MemoryLimitsTest, AGroupOfVersion1MayHaveLess) {
  write("proc/self/cgroup",
        "12:cpuset:/docker/abc\n5:cpu,cpuacct:/docker/abc\n4:memory:/docker/abc\n0::/docker/abc\n");
  // A container of version 1 has its group where the host has the root.
  write("sys/fs/cgroup/memory/memory.limit_in_bytes", "1073741824\n");
  write("sys/fs/cgroup/memory/memory.usage_in_bytes", "1073741824\n");
  write("sys/fs/cgroup/memory/memory.stat",
        "inactive_file 1\ntotal_inactive_file 1048576\ntotal_active_file 2097152\n");
  expect_available(3 * mib, "/memory.limit_in_bytes");
  write("sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes", "9223372036854771712\n");
  write("sys/fs/cgroup/memory/docker/abc/memory.usage_in_bytes", "5000\n");
  expect_available(3 * mib, "/memory.limit_in_bytes");
  EXPECT_EQ(memory_limits(root_).memory, 1024 * mib);
}

TEST_F(MemoryLimitsTest, FreeSwapCountsUnlessAGroupLimitsIt) {
  write("proc/meminfo",
        "MemTotal:       16777216 kB\nMemAvailable:    1048576 kB\nSwapTotal:      4194304 kB\n"
        "SwapFree:       2097152 kB\n");
  expect_available(3072 * mib, "the host");
  EXPECT_EQ(memory_limits(root_).memory, 16384 * mib);
  write("proc/self/cgroup", "0::/slurm/job_7\n");
  write("sys/fs/cgroup/slurm/job_7/memory.swap.max", "max\n");
  expect_available(3072 * mib, "the host");
  write("sys/fs/cgroup/slurm/memory.swap.max", "0\n");
  expect_available(1024 * mib, "the host");
  write("proc/self/cgroup", "4:memory:/\n");
  write("sys/fs/cgroup/memory/memory.memsw.limit_in_bytes", "9223372036854771712\n");
  expect_available(3072 * mib, "the host");
  write("sys/fs/cgroup/memory/memory.memsw.limit_in_bytes", "1073741824\n");
  expect_available(1024 * mib, "the host");
}

TEST_F(MemoryLimitsTest, WhatThisHostSaysIsUnderstood) {
  const AvailableMemory available = available_memory();
  EXPECT_GT(available.bytes, 0U);
  EXPECT_LT(available.bytes, unlimited);
}

TEST_F(MemoryLimitsTest, TheAddressSpaceIsWhatIsLeftOfItsLimit) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers reserve more address space than the limit";
#endif
  EXPECT_EQ(memory_limits(root_).address_space, unlimited);
  write("proc/self/statm", "1000 900 800 7 0 6 0\n");
  const pid_t child = ::fork();  // the limit stays with its process
  ASSERT_GE(child, 0);
  if (child == 0) {
    const rlimit limit{.rlim_cur = 1024 * mib, .rlim_max = RLIM_INFINITY};
    if (::setrlimit(RLIMIT_AS, &limit) != 0) ::_exit(2);
    const auto used = 1000 * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    ::_exit(memory_limits(root_).address_space == 1024 * mib - used ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST(HeapBytes, IsAtMostTheLimitOfFiles) {
  EXPECT_EQ(heap_bytes({1024 * mib, unlimited, 5 * mib + 1}, 1), 5 * mib);
  const FileSizeLimit limit(7 * mib);
  EXPECT_EQ(memory_limits().file_size, 7 * mib);
}

TEST(HeapBytes, OfAllRanksFitIntoMemoryAndAddressSpace) {
  EXPECT_EQ(heap_bytes({1024 * mib, unlimited}, 1), 1024 * mib);
  EXPECT_EQ(heap_bytes({1024 * mib, unlimited}, 64), 16 * mib);
  // 64 ranks with ulimit -v of 64 GiB on a host with 2 TiB.
  EXPECT_EQ(heap_bytes({std::size_t{2} << 40, std::size_t{64} << 30}, 64), 512 * mib);
  EXPECT_EQ(heap_bytes({3 * mib, unlimited}, 1000) % 4096, 0U);
  EXPECT_EQ(heap_bytes({1, 1}, 1000), 4096U);
  EXPECT_LT(heap_bytes({unlimited, unlimited}, 1), std::size_t{1} << 46);
}

}  // namespace
}  // namespace kolo::internal::node
