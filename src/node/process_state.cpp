// SPDX-License-Identifier: Apache-2.0
#include "node/process_state.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "node/file_descriptor.hpp"

namespace kolo::internal::node {

namespace {

using StatText = std::array<char, 512>;

/// The fields after the name in the `stat` file of a process or thread; the first is the state.
/// Empty if there is no such file; errno then has the reason.
std::string_view read_stat(const char* path, StatText& text) noexcept {
  const FileDescriptor file(::open(path, O_RDONLY | O_CLOEXEC));
  if (!file.valid()) return {};
  const ssize_t length = ::read(file.get(), text.data(), text.size());
  if (length <= 0) return {};
  // The format is "pid (name) state ...". A name may contain anything, so search from the end.
  const std::string_view line(text.data(), static_cast<std::size_t>(length));
  const std::size_t name_end = line.rfind(") ");
  errno = 0;
  if (name_end == std::string_view::npos || name_end + 2 >= line.size()) return {};
  return line.substr(name_end + 2);
}

std::optional<char> read_state(const char* path) noexcept {
  StatText text;
  const std::string_view stat = read_stat(path, text);
  return stat.empty() ? std::nullopt : std::optional(stat.front());
}

std::array<char, 64> path_of_process(pid_t process) noexcept {
  std::array<char, 64> path{};
  std::snprintf(path.data(), path.size(), "/proc/%d/stat", static_cast<int>(process));
  return path;
}

}  // namespace

ProcessState process_state(pid_t process) noexcept {
  const std::optional<char> state = read_state(path_of_process(process).data());
  if (!state)
    return errno == ENOENT || errno == ESRCH ? ProcessState::ended : ProcessState::unknown;
  switch (*state) {
    case 'T': return ProcessState::stopped;
    case 't': return ProcessState::traced;
    case 'D': return ProcessState::uninterruptible;
    case 'Z':
    case 'X': return ProcessState::ended;
    default: return ProcessState::alive;
  }
}

std::uint64_t start_of_process(pid_t process) noexcept {
  constexpr int fields_before = 19;  // fields from the state to the start time
  StatText text;
  std::string_view stat = read_stat(path_of_process(process).data(), text);
  for (int field = 0; field < fields_before; ++field) {
    const std::size_t space = stat.find(' ');
    if (space == std::string_view::npos) return 0;
    stat.remove_prefix(space + 1);
  }
  std::uint64_t start = 0;
  std::from_chars(stat.data(), stat.data() + stat.size(), start);
  return start;
}

bool process_ended(pid_t process, std::uint64_t started) noexcept {
  if (process_state(process) == ProcessState::ended) return true;
  // The number may belong to a later process, which has another start time.
  const std::uint64_t start = start_of_process(process);
  return started != 0 && start != 0 && start != started;
}

bool other_threads_run() noexcept {
  const std::unique_ptr<DIR, int (*)(DIR*)> threads(::opendir("/proc/self/task"), &::closedir);
  if (threads == nullptr) return false;
  const std::string own = std::to_string(::gettid());
  while (const dirent* entry = ::readdir(threads.get())) {
    const std::string_view name(entry->d_name);
    if (name.front() == '.' || name == own) continue;
    std::array<char, 64> path{};
    std::snprintf(path.data(), path.size(), "/proc/self/task/%.20s/stat", entry->d_name);
    if (read_state(path.data()) == 'R') return true;
  }
  return false;
}

}  // namespace kolo::internal::node
