#include "node/process_state.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <string_view>

#include "node/file_descriptor.hpp"

namespace kolo::node {

ProcessState process_state(pid_t process) noexcept {
  std::array<char, 64> path{};
  std::snprintf(path.data(), path.size(), "/proc/%d/stat", static_cast<int>(process));
  const FileDescriptor file(::open(path.data(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) return errno == ENOENT ? ProcessState::ended : ProcessState::unknown;
  std::array<char, 256> text{};
  const ssize_t length = ::read(file.get(), text.data(), text.size());
  if (length <= 0) return errno == ESRCH ? ProcessState::ended : ProcessState::unknown;
  // "pid (name) state ...", and a name may contain anything.
  const std::string_view line(text.data(), static_cast<std::size_t>(length));
  const std::size_t name_end = line.rfind(") ");
  if (name_end == std::string_view::npos || name_end + 2 >= line.size())
    return ProcessState::unknown;
  switch (line[name_end + 2]) {
    case 'T': return ProcessState::stopped;
    case 't': return ProcessState::traced;
    case 'D': return ProcessState::uninterruptible;
    case 'Z':
    case 'X': return ProcessState::ended;
    default: return ProcessState::alive;
  }
}

}  // namespace kolo::node
