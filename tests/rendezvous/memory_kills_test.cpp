// SPDX-License-Identifier: Apache-2.0
// Recorded files stand for the kernel's.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "kolorun/memory_kills.hpp"

namespace kolorun {
namespace {

namespace fs = std::filesystem;

class MemoryKillsTest : public testing::Test {
 protected:
  MemoryKillsTest() { fs::create_directories(root_); }
  ~MemoryKillsTest() override { fs::remove_all(root_); }

  void write(const std::string& path, const std::string& text) const {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  [[nodiscard]] MemoryKills make() const { return MemoryKills(root_ / "self", root_ / "fs"); }

  fs::path root_ = fs::temp_directory_path() / ("memory_kills." + std::to_string(::getpid()));
};

TEST_F(MemoryKillsTest, Version2) {
  write("self", "0::/jobs/train\n");
  write("fs/jobs/train/memory.events", "low 0\nhigh 3\nmax 12\noom 2\noom_kill 1\n");
  write("fs/jobs/train/memory.max", "4294967296\n");
  EXPECT_EQ(make().count(), 1);
  EXPECT_EQ(make().limit(), "its cgroup has a memory limit of 4.0 GiB");
  write("fs/jobs/train/memory.events", "oom 3\noom_kill 2\n");
  write("fs/jobs/train/memory.max", "max\n");
  EXPECT_EQ(make().count(), 2);
  EXPECT_EQ(make().limit(), "");
}

TEST_F(MemoryKillsTest, Version1) {
  write("self", "9:cpu,cpuacct:/a\n4:memory:/docker/1234\n1:name=systemd:/b\n0::/\n");
  write("fs/memory/docker/1234/memory.oom_control",
        "oom_kill_disable 0\nunder_oom 0\noom_kill 7\n");
  write("fs/memory/docker/1234/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_EQ(make().count(), 7);
  EXPECT_EQ(make().limit(), "");
}

// There the path is that of the host, and the mounted root is the container's own cgroup.
TEST_F(MemoryKillsTest, InContainers) {
  write("self", "4:memory:/docker/1234\n0::/\n");
  write("fs/memory/memory.oom_control", "oom_kill 5\n");
  EXPECT_EQ(make().count(), 5);
  write("self", "0::/../outer\n");
  write("fs/memory.events", "oom_kill 6\n");
  EXPECT_EQ(make().count(), 6);
}

TEST_F(MemoryKillsTest, WithoutCgroups) {
  EXPECT_EQ(make().count(), 0);
  EXPECT_EQ(make().limit(), "");
  write("self", "nonsense\n0::/a\n");
  EXPECT_EQ(make().count(), 0);
  EXPECT_EQ(make().limit(), "");
}

}  // namespace
}  // namespace kolorun
