// SPDX-License-Identifier: Apache-2.0
#include "child.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <stdexcept>
#include <string_view>
#include <system_error>

#include "base/process_limits.hpp"

namespace kolorun {
namespace {

// The original limit of descriptors, for children; set once the limit is raised.
rlimit limit_of_children{};

std::vector<char*> pointers_to(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  pointers.reserve(texts.size() + 1);
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

std::string_view name_in(std::string_view variable) {
  return variable.substr(0, variable.find('='));
}

/// kolorun's environment, overridden by `variables`. A child with variables of its own does not
/// inherit RANK, which would be the rank of another process.
std::vector<std::string> environment_with(const std::vector<std::string>& variables) {
  std::vector<std::string> all = variables;
  for (char** each = environ; *each != nullptr; ++each)
    if (std::ranges::find(variables, name_in(*each), name_in) == variables.end() &&
        !(name_in(*each) == "RANK" && !variables.empty()))
      all.emplace_back(*each);
  return all;
}

/// Runs the program in the child. Only system calls are allowed here, since other threads of
/// kolorun may have held locks at the fork.
[[noreturn]] void become(char* const* command, char* const* environment, const Streams& streams,
                         const cpu_set_t& processors, pid_t parent, int report) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, streams.ignores_sigterm ? SIGHUP : SIGTERM);
  ::signal(SIGTERM, streams.ignores_sigterm ? SIG_IGN : SIG_DFL);
  if (::getppid() != parent) ::_exit(1);  // the parent has ended meanwhile
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::signal(SIGPIPE, SIG_DFL);
  ::signal(SIGXFSZ, SIG_DFL);
  if (limit_of_children.rlim_max != 0) ::setrlimit(RLIMIT_NOFILE, &limit_of_children);
  if (CPU_COUNT(&processors) > 0) ::sched_setaffinity(0, sizeof processors, &processors);
  environ = const_cast<char**>(environment);  // execvp searches this PATH
  if (::dup2(streams.in, 0) >= 0 && ::dup2(streams.out, 1) >= 0 && ::dup2(streams.error, 2) >= 0)
    ::execvp(command[0], command);
  const int error = errno;
  static_cast<void>(::write(report, &error, sizeof error));
  ::_exit(127);
}

}  // namespace

void open_standard_streams() {
  for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (::fcntl(descriptor, F_GETFD) < 0) static_cast<void>(::open("/dev/null", O_RDWR));
}

void raise_descriptor_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit_of_children = limit;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

Pipe make_pipe() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0)
    throw std::runtime_error(fmt::format("no pipe: {}", kolo::internal::error_text(errno)));
  return {node::FileDescriptor(ends[0]), node::FileDescriptor(ends[1])};
}

pid_t start_child(const std::vector<std::string>& command,
                  const std::vector<std::string>& variables, const Streams& streams,
                  std::span<const int> processors) {
  std::vector<std::string> words = command;
  std::vector<std::string> environment = environment_with(variables);
  const std::vector<char*> argv = pointers_to(words);
  const std::vector<char*> envp = pointers_to(environment);
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int processor : processors) CPU_SET(static_cast<std::size_t>(processor), &set);
  Pipe report = make_pipe();
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid == 0) become(argv.data(), envp.data(), streams, set, parent, report.to.get());
  if (pid < 0)
    throw std::runtime_error(
        fmt::format("no process can be started: {}", kolo::internal::error_text(errno)));
  ::setpgid(pid, pid);
  report.to = node::FileDescriptor();  // the child's copy closes when the program starts
  int error = 0;
  if (::read(report.from.get(), &error, sizeof error) != sizeof error) return pid;
  ::waitpid(pid, nullptr, 0);
  throw std::runtime_error(
      fmt::format("'{}' cannot be run: {}", command.front(), kolo::internal::error_text(error)));
}

}  // namespace kolorun
