// SPDX-License-Identifier: Apache-2.0
#include "agent.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <kolo/error.hpp>
#include <kolo/version.hpp>
#include <stdexcept>
#include <utility>

#include "child.hpp"
#include "rendezvous/tcp_rendezvous.hpp"

namespace kolorun {
namespace {

using namespace std::chrono_literals;

constexpr std::chrono::seconds grace{5};  // from SIGTERM to SIGKILL
// When a process has failed, the others notice it by themselves, and say what they miss.
constexpr std::chrono::seconds patience_after_failure{2};
constexpr int signal_base = 128;
constexpr int cannot_run = 127;

void say(const std::string& text) { write_all(STDERR_FILENO, "kolorun: " + text + '\n'); }

node::FileDescriptor open_file(const std::string& path) {
  node::FileDescriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (!file.valid())
    throw std::runtime_error(
        fmt::format("'{}' cannot be written: {}", path, std::generic_category().message(errno)));
  return file;
}

/// SIGCONT, since a stopped process would not notice the other one.
void signal_group(pid_t leader, int signal) {
  ::kill(-leader, signal);
  ::kill(-leader, SIGCONT);
}

}  // namespace

node::FileDescriptor open_signals() {
  sigset_t handled;
  ::sigemptyset(&handled);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGCHLD, SIGUSR1, SIGUSR2, SIGCONT})
    ::sigaddset(&handled, signal);
  ::sigprocmask(SIG_BLOCK, &handled, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
  return node::FileDescriptor(::signalfd(-1, &handled, SFD_CLOEXEC | SFD_NONBLOCK));
}

Agent::Agent(const Options& options, const rendezvous::Endpoint& server, bool serves,
             const node::FileDescriptor& signals)
    : options_(options),
      server_(server),
      serves_(serves),
      signals_(signals),
      connection_(rendezvous::connect_to(server, options.server.start_timeout)),
      lease_(options.server.lease) {
  rendezvous::tune(connection_.descriptor(), lease_);
  connection_.send(rendezvous::Hello{.secret = rendezvous::first_half(options.server.secret),
                                     .role = rendezvous::Role::agent,
                                     .host = rendezvous::host_name(),
                                     .machine = rendezvous::machine_name(),
                                     .pid = ::getpid(),
                                     .wanted_rank = serves ? 0 : 1,
                                     .slots = options.slots,
                                     .version = std::string(kolo::version)});
}

int Agent::run() {
  while (!status_ || !children_.empty()) {
    wait();
    take_signals();
    receive();
    reap();
    kill_due();
    if (!status_) keep_alive();
    copy_output();
  }
  // What a process has written before its end is there now.
  copy_output();
  for (TaggedStream& stream : streams_) stream.finish();
  return *status_;
}

int Agent::milliseconds_to_wait() const {
  auto next = Clock::now() + lease_ / 8;
  for (const auto& [pid, child] : children_)
    for (const auto& time : {child.end_at, child.kill_at})
      if (time) next = std::min(next, *time);
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(next - Clock::now()).count();
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, 10'000));
}

void Agent::wait() {
  std::vector<pollfd> waits{{.fd = signals_.get(), .events = POLLIN, .revents = 0}};
  if (!connection_.closed()) {
    const bool writes = !connection_.flushed();
    waits.push_back({.fd = connection_.descriptor(),
                     .events = static_cast<short>(writes ? POLLIN | POLLOUT : POLLIN),
                     .revents = 0});
  }
  for (const TaggedStream& stream : streams_)
    waits.push_back({.fd = stream.descriptor(), .events = POLLIN, .revents = 0});
  ::poll(waits.data(), waits.size(), milliseconds_to_wait());
}

// ---- the server ----

void Agent::receive() {
  if (connection_.closed()) return;
  connection_.write();
  connection_.read([&](const rendezvous::Message& message) {
    heard_ = Clock::now();
    take(message);
    return true;
  });
  if (connection_.closed() && !status_)
    end_all(1, fmt::format("the rendezvous server at {} is gone: {}",
                           rendezvous::to_string(server_), connection_.reason()));
}

void Agent::take(const rendezvous::Message& message) {
  if (const auto* welcome = std::get_if<rendezvous::Welcome>(&message)) {
    welcome_ = welcome->secret == rendezvous::second_half(options_.server.secret);
    lease_ = std::clamp<std::chrono::nanoseconds>(welcome->lease, 100ms, 1h);
    if (!welcome_) end_all(1, "whoever answers does not know the secret of this job");
  } else if (const auto* refusal = std::get_if<rendezvous::Refusal>(&message)) {
    end_all(1, fmt::format("the rendezvous server at {} refuses this host: {}",
                           rendezvous::to_string(server_), refusal->reason));
  } else if (!welcome_ || status_) {
    return;
  } else if (const auto* more = std::get_if<rendezvous::Start>(&message)) {
    for (const rendezvous::Launch& launch : more->launches) start(launch);
  } else if (const auto* kill = std::get_if<rendezvous::Kill>(&message)) {
    for (auto& [pid, child] : children_)
      if (child.id == kill->process && !child.kill_at) child.kill_at = Clock::now() + grace;
  } else if (const auto* end = std::get_if<rendezvous::End>(&message)) {
    told_ = true;
    end_all(end->status, "",
            end->status == 0 ? Clock::duration{} : Clock::duration(patience_after_failure));
  }
}

/// Without a word from the server for half of the lease, the processes must end: after all of it
/// the others go on without them.
void Agent::keep_alive() {
  const auto now = Clock::now();
  if (now - heard_ > lease_ / 2) {
    end_all(1, fmt::format("nothing was heard of the rendezvous server at {} for {:.1f} s",
                           rendezvous::to_string(server_),
                           std::chrono::duration<double>(now - heard_).count()));
    for (auto& [pid, child] : children_) child.kill_at = now;
  } else if (now - sent_ >= lease_ / 8) {
    sent_ = now;
    connection_.send(rendezvous::Keepalive{});
  }
}

void Agent::report(rendezvous::ProcessId process, int status) {
  connection_.send(rendezvous::Exited{process, status});
}

// ---- processes ----

std::vector<std::string> Agent::variables_for(const rendezvous::Launch& launch) const {
  const int port = server_.port;
  std::vector<std::string> variables{
      fmt::format("{}={}", rendezvous::server_variable, rendezvous::to_string(server_)),
      fmt::format("{}={}", rendezvous::secret_variable, rendezvous::to_hex(options_.server.secret)),
      fmt::format("{}={}", rendezvous::process_variable, launch.process),
      fmt::format("LOCAL_RANK={}", launch.local_rank),
      fmt::format("LOCAL_WORLD_SIZE={}", launch.local_size),
      fmt::format("MASTER_ADDR={}", server_.host),
      fmt::format("MASTER_PORT={}", port < 65535 ? port + 1 : port - 1)};
  if (launch.rank >= 0) variables.push_back(fmt::format("RANK={}", launch.rank));
  variables.push_back(fmt::format("WORLD_SIZE={}", launch.size));
  variables.insert(variables.end(), options_.variables.begin(), options_.variables.end());
  return variables;
}

void Agent::start(const rendezvous::Launch& launch) {
  try {
    const node::FileDescriptor nothing(::open("/dev/null", O_RDWR | O_CLOEXEC));
    Streams streams{
        .in = launch.rank == 0 && ::isatty(STDIN_FILENO) == 0 ? STDIN_FILENO : nothing.get(),
        .out = STDOUT_FILENO,
        .error = STDERR_FILENO};
    const std::string name = launch.rank >= 0 ? fmt::format("rank.{}", launch.rank)
                                              : fmt::format("process.{}", launch.process);
    node::FileDescriptor out;
    node::FileDescriptor error;
    if (!options_.output_dir.empty()) {
      ::mkdir(options_.output_dir.c_str(), 0777);
      out = open_file(options_.output_dir + '/' + name + ".out");
      error = open_file(options_.output_dir + '/' + name + ".err");
    } else if (options_.tag_output) {
      const std::string tag =
          fmt::format("[{}] ", launch.rank >= 0 ? std::to_string(launch.rank)
                                                : "process " + std::to_string(launch.process));
      Pipe out_pipe = make_pipe();
      Pipe error_pipe = make_pipe();
      streams_.emplace_back(std::move(out_pipe.from), STDOUT_FILENO, tag);
      streams_.emplace_back(std::move(error_pipe.from), STDERR_FILENO, tag);
      out = std::move(out_pipe.to);
      error = std::move(error_pipe.to);
    }
    if (out.valid()) streams.out = out.get();
    if (error.valid()) streams.error = error.get();
    const pid_t pid = start_child(options_.command, variables_for(launch), streams);
    children_.emplace(pid, Running{launch.process});
  } catch (const std::exception& error) {
    say(error.what());
    report(launch.process, cannot_run);
  }
}

void Agent::reap() {
  int how = 0;
  while (true) {
    const pid_t pid = ::waitpid(-1, &how, WNOHANG);
    if (pid <= 0) return;
    const auto child = children_.find(pid);
    if (child == children_.end()) continue;
    // What it has started itself ends with it.
    ::kill(-pid, SIGKILL);
    report(child->second.id, WIFSIGNALED(how) ? signal_base + WTERMSIG(how) : WEXITSTATUS(how));
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

void Agent::kill_due() {
  const auto now = Clock::now();
  for (auto& [pid, child] : children_) {
    if (child.end_at && now >= *child.end_at) {
      signal_group(pid, SIGTERM);
      child.end_at.reset();
      child.kill_at = now + grace;
    }
    if (!child.kill_at || now < *child.kill_at) continue;
    ::kill(-pid, SIGKILL);
    child.kill_at = now + grace;
  }
}

void Agent::end_all(int status, const std::string& reason, Clock::duration patience) {
  if (status_) return;
  status_ = status;
  if (!reason.empty()) say(reason);
  for (auto& [pid, child] : children_) child.end_at = Clock::now() + patience;
  kill_due();
}

// ---- signals ----

void Agent::take_signals() {
  signalfd_siginfo info{};
  while (::read(signals_.get(), &info, sizeof info) == sizeof info)
    on_signal(static_cast<int>(info.ssi_signo));
}

void Agent::on_signal(int signal) {
  if (signal == SIGCHLD) return;
  if (signal == SIGUSR1 || signal == SIGUSR2 || signal == SIGCONT) {
    for (const auto& [pid, child] : children_) ::kill(-pid, signal);
    return;
  }
  const bool leaves = signal == SIGTERM && !serves_ && options_.server.elastic && !removing_;
  if (leaves && !status_) {
    removing_ = true;
    connection_.send(rendezvous::Removal{fmt::format("its kolorun got signal {}", signal)});
    return;
  }
  // A second one does not wait.
  if (status_)
    for (auto& [pid, child] : children_)
      (child.end_at ? child.end_at : child.kill_at) = Clock::now();
  end_all(signal_base + signal, fmt::format("signal {}: the job ends", signal));
}

}  // namespace kolorun
