// SPDX-License-Identifier: Apache-2.0
// Counts of the processes that the kernel has killed for lack of memory.
#pragma once

#include <cstdint>
#include <string>

namespace kolorun {

/// Counts such processes in the cgroup of this process, to which those that it starts belong. Reads
/// version 2 and version 1 of cgroups.
class MemoryKills {
 public:
  /// `self`: the file with this process's cgroups; `root`: where cgroups are mounted. Other files
  /// stand for them in tests.
  explicit MemoryKills(std::string self = "/proc/self/cgroup", std::string root = "/sys/fs/cgroup");

  /// How many so far; 0 if that is unknown.
  [[nodiscard]] std::int64_t count() const;
  /// "its cgroup has a memory limit of 4.0 GiB"; "" if there is none.
  [[nodiscard]] std::string limit() const;

 private:
  std::string folder_{};  // folder of the cgroup; empty if there is none
  bool is_version_2_ = false;
};

}  // namespace kolorun
