// SPDX-License-Identifier: Apache-2.0
#include "memory_kills.hpp"

#include <fmt/format.h>

#include <fstream>
#include <string_view>
#include <utility>

namespace kolorun {
namespace {

/// The number behind a word in a file of lines such as "oom_kill 3"; 0 if there is none.
std::int64_t number_behind(const std::string& path, std::string_view wanted) {
  std::ifstream file(path);
  std::string word;
  std::int64_t number = 0;
  while (file >> word >> number)
    if (word == wanted) return number;
  return 0;
}

}  // namespace

MemoryKills::MemoryKills(std::string self, std::string root) {
  std::ifstream file(self);
  // Lines such as "0::/path" (version 2) and "5:memory:/path" (version 1).
  for (std::string line; std::getline(file, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string path = line.substr(second + 1);
    if ((',' + controllers + ',').find(",memory,") != std::string::npos) {
      folder_ = root + "/memory" + path;
      is_version_2_ = false;
      // A container sees its own cgroup as the root.
      if (!std::ifstream(folder_ + "/memory.oom_control")) folder_ = root + "/memory";
      return;
    }
    if (!controllers.empty()) continue;
    folder_ = root + path;
    is_version_2_ = true;
    if (!std::ifstream(folder_ + "/memory.events")) folder_ = std::move(root);
  }
}

std::int64_t MemoryKills::count() const {
  return number_behind(folder_ + (is_version_2_ ? "/memory.events" : "/memory.oom_control"),
                       "oom_kill");
}

std::string MemoryKills::limit() const {
  std::ifstream file(folder_ + (is_version_2_ ? "/memory.max" : "/memory.limit_in_bytes"));
  double bytes = 0;  // "max" if there is no limit, or 2^63 rounded to pages
  constexpr double no_limit = 1e18;
  if (!(file >> bytes) || bytes > no_limit) return "";
  return fmt::format("its cgroup has a memory limit of {:.1f} GiB", bytes / (1 << 30));
}

}  // namespace kolorun
