// SPDX-License-Identifier: Apache-2.0
#include "discovery.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <exception>
#include <utility>

#include "kolorun/child.hpp"

namespace kolorun {
namespace {

using namespace std::chrono_literals;

constexpr Discovery::Clock::duration interval = 1s;
constexpr Discovery::Clock::duration max_run = 60s;
constexpr std::size_t max_output = 1 << 20;

}  // namespace

void Discovery::act(std::string& problem) {
  read();
  if (Clock::now() < next_) return;
  if (pid_ > 0) {
    ::kill(-pid_, SIGKILL);
    next_ = Clock::now() + max_run;
    return;
  }
  try {
    start();
  } catch (const std::exception& error) {  // out of processes or descriptors
    next_ = Clock::now() + interval;
    problem = news(error.what());
  }
}

void Discovery::start() {
  const node::FileDescriptor nothing(::open("/dev/null", O_RDWR | O_CLOEXEC));
  Pipe pipe = make_pipe();
  ::fcntl(pipe.from.get(), F_SETFL, O_NONBLOCK);
  pid_ = start_child({"sh", "-c", script_}, {},
                     {.in = nothing.get(), .out = pipe.to.get(), .error = STDERR_FILENO});
  output_ = std::move(pipe.from);
  text_.clear();
  next_ = Clock::now() + max_run;
}

void Discovery::read() {
  std::array<char, 4096> buffer;
  while (output_.valid()) {
    const ssize_t bytes = ::read(output_.get(), buffer.data(), buffer.size());
    if (bytes == 0) output_ = node::FileDescriptor();
    if (bytes <= 0) return;
    if (text_.size() < max_output) text_.append(buffer.data(), static_cast<std::size_t>(bytes));
  }
}

std::optional<std::vector<Host>> Discovery::on_end(int how, std::string& problem) {
  read();
  output_ = node::FileDescriptor();
  pid_ = -1;
  next_ = Clock::now() + interval;
  std::string wrong;
  std::vector<Host> hosts;
  try {
    if (WIFSIGNALED(how))
      wrong = fmt::format("it was ended by signal {}", WTERMSIG(how));
    else if (WEXITSTATUS(how) != 0)
      wrong = fmt::format("it has ended with status {}", WEXITSTATUS(how));
    else if (text_.size() >= max_output)
      wrong = "its output is too long";
    else
      hosts = parse_host_lines(text_, slots_, "its output");
    // A list without hosts probably means that the network has failed, so it counts as an error.
    if (wrong.empty() && hosts.empty()) wrong = "it has printed no hosts";
  } catch (const std::exception& error) {
    wrong = error.what();
  }
  problem = news(wrong);
  if (!wrong.empty()) return std::nullopt;
  return hosts;
}

std::string Discovery::news(const std::string& problem) {
  if (std::exchange(problem_, problem) == problem || problem.empty()) return "";
  return fmt::format("--host-discovery-script: {}; the hosts stay as they are", problem);
}

void Discovery::stop() {
  if (pid_ > 0) ::kill(-pid_, SIGKILL);
}

}  // namespace kolorun
