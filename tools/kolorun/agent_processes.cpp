// SPDX-License-Identifier: Apache-2.0
// Starting and ending the processes of an agent.
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <utility>

#include "agent.hpp"
#include "base/process_limits.hpp"
#include "child.hpp"
#include "output/error_files.hpp"
#include "output/redirection.hpp"
#include "rendezvous/server/process_table.hpp"
#include "rendezvous/tcp_rendezvous.hpp"
#include "transport/machine.hpp"

namespace kolorun {
namespace {

/// Sends SIGCONT too, because a stopped process would not handle the other signal.
void signal_group(pid_t leader, int signal) {
  ::kill(-leader, signal);
  ::kill(-leader, SIGCONT);
}

}  // namespace

std::vector<std::string> Agent::variables_for(const rendezvous::Launch& launch) const {
  const int port = server_.port;
  // The port of a server that the program itself may have.
  const bool is_last = port == 65535 || port == options_.server.port_range.last;
  std::vector<std::string> variables{
      fmt::format("{}={}", rendezvous::server_variable, transport::to_string(server_)),
      fmt::format("{}={}", rendezvous::standby_variable,
                  electorate_ ? transport::to_string(*options_.standby) : ""),
      fmt::format("{}={}", rendezvous::secret_variable, rendezvous::to_hex(options_.server.secret)),
      fmt::format("{}={}", rendezvous::process_variable, launch.process),
      fmt::format("LOCAL_RANK={}", launch.local_rank),
      fmt::format("LOCAL_WORLD_SIZE={}", launch.local_size),
      fmt::format("MASTER_ADDR={}",
                  options_.joining.master.empty() ? server_.host : options_.joining.master),
      fmt::format("MASTER_PORT={}", is_last ? port - 1 : port + 1)};
  if (launch.rank >= 0) variables.push_back(fmt::format("RANK={}", launch.rank));
  variables.push_back(fmt::format("WORLD_SIZE={}", launch.size));
  variables.push_back(fmt::format("KOLO_RESTARTS={}", launch.restarts));
  const char* const given_path = std::getenv("KOLO_STATUS_FILE");
  const bool has_path = given_path != nullptr && *given_path != '\0';
  if (!has_path && !job_status_.path().empty())
    variables.push_back("KOLO_STATUS_FILE=" + job_status_.path());
  // Variables given by -x take precedence.
  for (const std::string& given : options_.variables) {
    const std::string name = given.substr(0, given.find('=') + 1);
    std::erase_if(variables, [&](const std::string& own) { return own.starts_with(name); });
    variables.push_back(given);
  }
  return variables;
}

void Agent::start(const rendezvous::Start& more) {
  if (more.launches.empty()) return;
  // In an elastic job each slot has its share, because its process may be replaced.
  const int count = options_.server.elastic ? options_.slots : more.launches.front().local_size;
  std::vector<std::vector<int>> shares(static_cast<std::size_t>(count));
  int status = stopping_ ? signal_base + SIGTERM : 0;
  std::string problem;
  try {
    if (options_.binding != Binding::none)
      shares = share_processors(options_.binding, node::Processors::of_this_host(),
                                node::own_processors(), count);
  } catch (const std::exception& error) {
    say(problem = error.what());
    status = rendezvous::cannot_run;
  }
  for (const rendezvous::Launch& launch : more.launches)
    if (status != 0)
      report_not_started(launch.process, status, problem);
    else
      start(launch, shares.at(static_cast<std::size_t>(launch.local_rank)));
}

void Agent::start(const rendezvous::Launch& launch, std::span<const int> processors) {
  try {
    const node::FileDescriptor nothing(::open("/dev/null", O_RDWR | O_CLOEXEC));
    Redirection to = redirect(options_, launch, streams_);
    const Streams streams{
        .in = launch.rank == 0 && ::isatty(STDIN_FILENO) == 0 ? STDIN_FILENO : nothing.get(),
        .out = to.out.valid() ? to.out.get() : STDOUT_FILENO,
        .error = to.error.valid() ? to.error.get() : STDERR_FILENO};
    const pid_t pid = start_child(options_.command, variables_for(launch), streams, processors);
    children_.emplace(pid, Running{.id = launch.process,
                                   .rank = launch.rank,
                                   .slot = launch.local_rank,
                                   .last_lines = std::move(to.last_lines),
                                   .error_file = std::move(to.error_file),
                                   .memory_kills = memory_kills_.count()});
  } catch (const std::exception& error) {
    say(error.what());
    report_not_started(launch.process, rendezvous::cannot_run, error.what());
  }
}

void Agent::report_not_started(rendezvous::ProcessId process, int status,
                               const std::string& problem) {
  report(rendezvous::Exited{.process = process, .status = status, .detail = problem});
}

/// Keeps the report as long as a standby may take over from a server that has told nobody of it.
void Agent::report(const rendezvous::Exited& exited) {
  constexpr std::size_t most = 1000;
  if (electorate_) exits_.push_back(exited);
  if (exits_.size() > most) exits_.pop_front();
  if (connection_) connection_->send(exited);
}

/// Reports an exit, with what may explain it.
void Agent::report(const Running& child, pid_t pid, int how) {
  rendezvous::Exited exited{
      .process = child.id,
      .status = WIFSIGNALED(how) ? signal_base + WTERMSIG(how) : WEXITSTATUS(how),
      .by_signal = is_told_to_end()};
  if (WIFSIGNALED(how) && WTERMSIG(how) == SIGKILL && memory_kills_.count() > child.memory_kills) {
    const std::string limit = memory_kills_.limit();
    exited.detail = "killed for lack of memory" + (limit.empty() ? "" : " (" + limit + ")");
  }
  if (exited.status != 0)
    exited.last_lines = child.last_lines           ? child.last_lines->text()
                        : child.error_file.empty() ? ""
                                                   : LastLines::of_file(child.error_file);
  if (exited.status != 0 && !child.error_file.empty())
    write_error_file(child.error_file.substr(0, child.error_file.rfind('.')) + ".error.json",
                     options_.joining.host.empty() ? transport::host_name() : options_.joining.host,
                     pid, exited);
  report(exited);
}

void Agent::reap() {
  int how = 0;
  while (true) {
    const pid_t pid = ::waitpid(-1, &how, WNOHANG);
    if (pid <= 0) return;
    const auto child = children_.find(pid);
    if (child == children_.end()) continue;
    // Ends the rest of the process group if the process has failed, or the job ends it. After a
    // clean exit, what the process left running, such as an upload, may finish.
    const bool is_clean = WIFEXITED(how) && WEXITSTATUS(how) == 0;
    if (!is_clean || child->second.end_at || child->second.kill_at || status_.value_or(0) != 0)
      ::kill(-pid, SIGKILL);
    copy_output();  // what it has written last
    report(child->second, pid, how);
    children_.erase(child);
  }
}

void Agent::copy_output() {
  std::erase_if(streams_, [](TaggedStream& stream) {
    if (stream.copy()) return false;
    stream.finish();
    return true;
  });
}

void Agent::signal_all(int signal) {
  for (const auto& [pid, child] : children_) ::kill(-pid, signal);
}

void Agent::kill_due() {
  const auto now = Clock::now();
  for (auto& [pid, child] : children_) {
    if (child.end_at && now >= *child.end_at) {
      signal_group(pid, SIGTERM);
      child.end_at.reset();
      child.kill_at = now + options_.grace;
    }
    if (!child.kill_at || now < *child.kill_at) continue;
    ::kill(-pid, SIGKILL);
    child.kill_at = now + patience_with_lost;
  }
}

void Agent::end_all(int status, const std::string& reason, Clock::duration patience) {
  if (status_) return;
  status_ = status;
  if (!reason.empty()) say(reason);
  for (auto& [pid, child] : children_) child.end_at = Clock::now() + patience;
  kill_due();
}

}  // namespace kolorun
