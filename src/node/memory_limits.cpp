// SPDX-License-Identifier: Apache-2.0
#include "node/memory_limits.hpp"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <limits>
#include <locale>
#include <optional>
#include <string_view>
#include <vector>

namespace kolo::internal::node {
namespace {

constexpr std::size_t unlimited = std::numeric_limits<std::size_t>::max();
constexpr std::size_t unit = 4096;  // heap sizes are multiples of this

/// Opens a file of the kernel. Its numbers have the same form whatever the program's locale is.
std::ifstream open_file(const std::string& path) {
  std::ifstream file(path);
  file.imbue(std::locale::classic());
  return file;
}

/// The number that follows `name` in a file of names and numbers, if there is one.
std::optional<std::size_t> find_number(const std::string& path, std::string_view name) {
  std::ifstream file = open_file(path);
  std::string found;
  std::size_t number = 0;
  while (file >> found) {
    if (found == name && file >> number) return number;
    file.clear();
    file.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  return std::nullopt;
}

/// The number that a file consists of; nothing if there is no such file, or it says "max".
std::optional<std::size_t> read_number(const std::string& path) {
  std::ifstream file = open_file(path);
  std::size_t number = 0;
  if (file >> number) return number;
  return std::nullopt;
}

/// The value of `name` in /proc/meminfo, in bytes.
std::optional<std::size_t> find_in_meminfo(const std::string& root, std::string_view name) {
  const std::optional<std::size_t> kilobytes = find_number(root + "/proc/meminfo", name);
  return kilobytes ? std::optional(*kilobytes * 1024) : std::nullopt;
}

/// A control group with a memory limit, and the memory left within it.
struct Group {
  std::string limit_file;
  std::size_t limit;
  std::size_t left;
};

/// The names of the files in one version of control groups.
struct Version {
  std::string_view mount;
  std::string_view limit;
  std::string_view usage;
  std::string_view swap_limit;
  // Entries of memory.stat: memory that the kernel reclaims before it kills a process. A warm page
  // cache may fill the whole group, so it must not count as used.
  std::array<std::string_view, 3> reclaimable;
};
constexpr Version version_1{"/sys/fs/cgroup/memory",
                            "memory.limit_in_bytes",
                            "memory.usage_in_bytes",
                            "memory.memsw.limit_in_bytes",
                            {"total_inactive_file", "total_active_file", ""}};
constexpr Version version_2{"/sys/fs/cgroup",
                            "memory.max",
                            "memory.current",
                            "memory.swap.max",
                            {"inactive_file", "active_file", "slab_reclaimable"}};

std::optional<Group> read_group(const std::string& directory, const Version& version) {
  std::string file = directory + std::string(version.limit);
  const std::optional<std::size_t> limit = read_number(file);
  if (!limit) return std::nullopt;
  const std::size_t used = read_number(directory + std::string(version.usage)).value_or(0);
  std::size_t reclaimable = 0;
  for (const std::string_view name : version.reclaimable)
    reclaimable += find_number(directory + "memory.stat", name).value_or(0);
  const std::size_t needed = used - std::min(used, reclaimable);
  return Group{std::move(file), *limit, *limit - std::min(*limit, needed)};
}

struct Groups {
  std::vector<Group> limited{};
  bool limit_swap = false;  // at least one group limits swap
};

bool limits_swap(const std::string& directory, const Version& version) {
  const std::optional<std::size_t> limit = read_number(directory + std::string(version.swap_limit));
  return limit && *limit < unlimited / 4;  // version 1 reports a huge number if there is no limit
}

/// The groups of this process and all groups above, as far as they are visible: a container may see
/// its own group in place of the host's root.
Groups find_groups(const std::string& root) {
  Groups groups;
  std::ifstream file(root + "/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    // A line has a number, controllers and a path, separated by colons. Version 2 names no
    // controllers.
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = ',' + line.substr(first + 1, second - first - 1) + ',';
    const bool is_2 = controllers == ",,";
    if (!is_2 && controllers.find(",memory,") == std::string::npos) continue;
    const Version& version = is_2 ? version_2 : version_1;
    const std::string mount = root + std::string(version.mount);
    std::string path = line.substr(second + 1);
    for (;;) {
      if (!path.ends_with('/')) path += '/';
      if (std::optional<Group> group = read_group(mount + path, version))
        groups.limited.push_back(std::move(*group));
      groups.limit_swap |= limits_swap(mount + path, version);
      if (path.size() == 1) break;
      path.erase(path.rfind('/', path.size() - 2) + 1);
    }
  }
  return groups;
}

std::size_t max_file_size() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return unlimited;
  return limit.rlim_cur;
}

std::size_t address_space_left(const std::string& root) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return unlimited;
  const std::size_t used = read_number(root + "/proc/self/statm").value_or(0) *
                           static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  return limit.rlim_cur - std::min<std::size_t>(limit.rlim_cur, used);
}

}  // namespace

AvailableMemory available_memory(const std::string& root) {
  AvailableMemory available{find_in_meminfo(root, "MemAvailable:").value_or(unlimited), "the host"};
  Groups groups = find_groups(root);
  // If a group limits swap, this process may not get any of the free swap.
  if (available.bytes != unlimited && !groups.limit_swap)
    available.bytes += find_in_meminfo(root, "SwapFree:").value_or(0);
  for (Group& group : groups.limited)
    if (group.left < available.bytes) available = {group.left, std::move(group.limit_file)};
  return available;
}

MemoryLimits memory_limits(const std::string& root) {
  const Groups groups = find_groups(root);
  MemoryLimits limits{find_in_meminfo(root, "MemTotal:").value_or(unlimited),
                      address_space_left(root), max_file_size()};
  for (const Group& group : groups.limited) limits.memory = std::min(limits.memory, group.limit);
  return limits;
}

std::size_t heap_bytes(const MemoryLimits& limits, int ranks_of_host) {
  // The maximum if no limit is known: more memory than most hosts have, but a small part of a
  // 47-bit address space.
  constexpr std::size_t max_of_all = std::size_t{1} << 44;
  const std::size_t all = std::min({limits.memory, limits.address_space / 2, max_of_all});
  const std::size_t each =
      std::min(all / static_cast<std::size_t>(ranks_of_host), limits.file_size);
  return std::max(each / unit * unit, unit);
}

}  // namespace kolo::internal::node
