// SPDX-License-Identifier: Apache-2.0
#include "node/process_state.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "node/file_descriptor.hpp"

namespace kolo::internal::node {

namespace {

/// Of a process or thread whose file is at `path`. If there is none, errno has the reason.
std::optional<char> read_state(const char* path) noexcept {
  const FileDescriptor file(::open(path, O_RDONLY | O_CLOEXEC));
  if (!file.valid()) return std::nullopt;
  std::array<char, 256> text{};
  const ssize_t length = ::read(file.get(), text.data(), text.size());
  if (length <= 0) return std::nullopt;
  // "pid (name) state ...", and a name may contain anything.
  const std::string_view line(text.data(), static_cast<std::size_t>(length));
  const std::size_t name_end = line.rfind(") ");
  errno = 0;
  if (name_end == std::string_view::npos || name_end + 2 >= line.size()) return std::nullopt;
  return line[name_end + 2];
}

}  // namespace

ProcessState process_state(pid_t process) noexcept {
  std::array<char, 64> path{};
  std::snprintf(path.data(), path.size(), "/proc/%d/stat", static_cast<int>(process));
  const std::optional<char> state = read_state(path.data());
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
