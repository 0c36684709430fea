// SPDX-License-Identifier: Apache-2.0
#include "session/job/start_watch.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <system_error>

#include "base/log.hpp"

namespace kolo::internal::session {
namespace {

constexpr std::chrono::milliseconds check_interval{100};
// The number of checks in a row for which processes are missing: after all have been there, and
// else, when the launcher may still be starting them.
constexpr int checks_after_all = 10;
constexpr int checks_at_start = 100;

std::optional<int> number_in(std::string_view text) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc()) return std::nullopt;
  return number;
}

struct ProcessLine {
  std::string name;
  pid_t parent;
};

std::optional<ProcessLine> read_process(pid_t process) {
  std::ifstream file(fmt::format("/proc/{}/stat", process));
  std::string text;
  std::getline(file, text);
  // "123 (name) S 1 ...", where a name may contain parentheses.
  const std::size_t begin = text.find('(');
  const std::size_t end = text.rfind(')');
  if (begin == std::string::npos || end == std::string::npos || end + 4 >= text.size())
    return std::nullopt;
  const auto parent = number_in(std::string_view(text).substr(end + 4));
  if (!parent) return std::nullopt;
  return ProcessLine{text.substr(begin + 1, end - begin - 1), *parent};
}

}  // namespace

std::optional<pid_t> find_launcher() {
  constexpr std::array names{"mpirun", "mpiexec", "orterun", "orted", "prterun", "prted"};
  for (pid_t process = ::getppid(); process > 1;) {
    const auto found = read_process(process);
    if (!found) return std::nullopt;
    if (std::ranges::find(names, found->name) != names.end()) return process;
    process = found->parent;
  }
  return std::nullopt;
}

std::optional<int> count_children(pid_t process) {
  std::error_code error;
  int count = 0;
  for (const auto& task :
       std::filesystem::directory_iterator(fmt::format("/proc/{}/task", process), error)) {
    std::ifstream file(task.path() / "children");
    if (!file) return std::nullopt;
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    count += static_cast<int>(std::ranges::count(text, ' '));  // one after each number
  }
  if (error) return std::nullopt;
  return count;
}

StartWatch::StartWatch() {
  const char* const size = std::getenv("OMPI_COMM_WORLD_LOCAL_SIZE");
  const auto processes = number_in(size == nullptr ? "" : size);
  const auto launcher = processes ? find_launcher() : std::nullopt;
  if (!launcher) return;
  try {
    thread_ = std::thread([this, launcher, processes] { watch(*launcher, *processes); });
  } catch (const std::system_error&) {
    log(LogLevel::debug, "no thread to watch whether other processes start MPI");
  }
}

StartWatch::~StartWatch() {
  {
    const std::scoped_lock lock(mutex_);
    is_over_ = true;
  }
  over_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void StartWatch::watch(pid_t launcher, int processes) {
  bool were_all_there = false;
  int checks = 0;
  std::unique_lock lock(mutex_);
  while (!over_.wait_for(lock, check_interval, [this] { return is_over_; })) {
    const auto count = count_children(launcher);
    if (!count) return;
    were_all_there = were_all_there || *count >= processes;
    checks = *count >= processes ? 0 : checks + 1;
    if (checks < (were_all_there ? checks_after_all : checks_at_start)) continue;
    log(LogLevel::critical,
        fmt::format("MPI_Init waits for all processes of the job, but {} of {} on this host have "
                    "ended before they called it: this process ends, so that mpirun ends the job",
                    processes - *count, processes));
    std::_Exit(EXIT_FAILURE);
  }
}

}  // namespace kolo::internal::session
