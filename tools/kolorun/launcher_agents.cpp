// SPDX-License-Identifier: Apache-2.0
// Starting agents, and passing on their input and output.
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <exception>
#include <iterator>
#include <utility>

#include "child.hpp"
#include "hosts/remote_shell.hpp"
#include "launcher.hpp"
#include "ticket.hpp"

namespace kolorun {

HostState Launcher::state_of(const Remote& remote) const {
  const auto now = Clock::now();
  if (!remote.wanted) return HostState::other;
  if (remote.pid < 0)
    return remote.not_before && now < *remote.not_before ? HostState::other : HostState::spare;
  if (remote.is_connected) return HostState::other;
  if (remote.asked) return HostState::restarting;
  // A remote shell may take minutes to find out that a host does not respond. Other hosts need not
  // wait for that.
  const bool is_starting = !remote.has_connected && now < remote.started + options_.server.lease;
  return is_starting ? HostState::starting : HostState::other;
}

/// Starts the agents of the first hosts whose slots the job needs. So ranks depend on the order of
/// the list, not on which host connects first, and no agent waits on a host without ranks.
void Launcher::start_needed() {
  const rendezvous::AgentsChanged current = serving_->agents();
  std::vector<Remote*> remotes;
  std::vector<HostCandidate> hosts;
  for (Remote& remote : remotes_) {
    remote.is_connected =
        remote.pid > 0 && std::ranges::binary_search(current.agents, remote.number);
    remote.has_connected |= remote.is_connected;
    const HostState state = state_of(remote);
    remotes.push_back(&remote);
    hosts.push_back({.state = state,
                     .slots = state == HostState::starting ? remote.slots : remote.host.slots,
                     .is_local = remote.local});
  }
  for (const std::size_t at : choose_hosts(hosts, current.missing_slots, options_.fanout))
    start(*remotes[at]);
}

void Launcher::start(Remote& remote) {
  remote.is_connected = remote.has_connected = false;
  remote.started = Clock::now();
  // Only elastic jobs go on when an agent ends.
  remote.not_before =
      options_.server.elastic ? std::nullopt : std::optional(Clock::time_point::max());
  try {
    start_agent(remote);
  } catch (const std::exception& problem) {
    if (options_.server.elastic)
      try_later(remote, fmt::format("host {}: {}", remote.host.name, problem.what()));
    else
      serving_->end(127, problem.what());
  }
}

void Launcher::start_agent(Remote& remote) {
  Pipe input = make_pipe();
  Pipe out;
  Pipe error;
  // Output is copied so that lines of several hosts do not mix, and because ssh sets its output to
  // non-blocking mode, which would affect other processes with the same output.
  const bool by_line = options_.tag_output || options_.tee;
  const bool copies = by_line || !remote.local;
  if (copies) {
    out = make_pipe();
    error = make_pipe();
  }
  // ssh would end by the SIGTERM that a scheduler sends to every process. Its agent gets it from
  // the server.
  const Streams streams{.in = input.from.get(),
                        .out = copies ? out.to.get() : STDOUT_FILENO,
                        .error = copies ? error.to.get() : STDERR_FILENO,
                        .ignores_sigterm = !remote.local};
  remote.unsent = write_ticket({options_.server.secret, arguments_for(remote)});
  remote.pid = start_child(command_for(remote), {}, streams);
  remote.asked = false;
  remote.slots = remote.host.slots;
  ::fcntl(input.to.get(), F_SETFL, O_NONBLOCK);
  remote.input = std::move(input.to);
  if (!copies) return;
  const auto how = by_line ? TaggedStream::Unit::line : TaggedStream::Unit::any;
  remote.streams.emplace_back(std::move(out.from),
                              TaggedStream::Copies{.to = STDOUT_FILENO, .unit = how});
  remote.streams.emplace_back(std::move(error.from),
                              TaggedStream::Copies{.to = STDERR_FILENO, .unit = how});
}

std::vector<std::string> Launcher::command_for(const Remote& remote) const {
  if (remote.local) return {program_, "--agent"};
  return agent_command(options_.rsh, remote.host.name, program_);
}

std::vector<std::string> Launcher::arguments_for(const Remote& remote) const {
  const rendezvous::ServerOptions& server = options_.server;
  const auto seconds = [](rendezvous::Time time) {
    return fmt::format("{}", std::chrono::duration<double>(time).count());
  };
  std::vector<std::string> words{
      fmt::format("--np={}", server.np),
      fmt::format("--slots={}", remote.host.slots),
      "--start-timeout=" + seconds(server.start_timeout),
      "--lease=" + seconds(server.lease),
      "--grace=" + seconds(options_.grace),
      "--wdir=" + directory_,
      "--join-as=" + remote.host.name,
      fmt::format("--join-number={}", remote.number),
      fmt::format("--join-order={}", std::min<rendezvous::ProcessId>(remote.number - 1, 60'000)),
      "--join-master=" + master(),
      "--join-job=" + server.job};
  if (server.elastic) {
    words.push_back(fmt::format("--min-np={}", server.min_np));
    words.push_back(fmt::format("--max-np={}", server.max_np));
  }
  if (remote.local && !options_.rendezvous)
    words.push_back(fmt::format("--join=127.0.0.1:{}", serving_->port()));
  else
    for (const std::string& address : addresses_) words.push_back("--join=" + address);
  if (const auto& ports = server.port_range; ports.is_set())
    words.push_back(fmt::format("--port-range={}:{}", ports.first, ports.last));
  if (options_.binding != Binding::none)
    words.emplace_back(options_.binding == Binding::core ? "--bind-to=core" : "--bind-to=numa");
  if (options_.tag_output) words.emplace_back("--tag-output");
  if (!options_.output_dir.empty()) words.push_back("--output-dir=" + options_.output_dir);
  if (options_.tee) words.emplace_back("--tee");
  if (options_.filter) words.push_back("--filter=" + options_.filter->text());
  std::vector<std::string> variables = options_.variables;
  if (!remote.local) std::ranges::copy(variables_of_other_hosts(), std::back_inserter(variables));
  for (std::string& variable : variables) {
    words.emplace_back("-x");
    words.push_back(std::move(variable));
  }
  words.insert(words.end(), options_.command.begin(), options_.command.end());
  return words;
}

/// KOLO_ variables are passed on, because all ranks must have the same settings. Variables given by
/// -x take precedence.
std::vector<std::string> Launcher::variables_of_other_hosts() const {
  std::vector<std::string> variables;
  for (char** each = environ; *each != nullptr; ++each) {
    const std::string_view variable(*each);
    const std::string_view name = variable.substr(0, variable.find('=') + 1);
    if (!name.starts_with("KOLO_") || name.starts_with("KOLO_RENDEZVOUS") || name == "KOLO_RSH=" ||
        name == "KOLO_RESTARTS=")
      continue;
    if (std::ranges::none_of(options_.variables,
                             [&](const std::string& given) { return given.starts_with(name); }))
      variables.emplace_back(variable);
  }
  return variables;
}

/// The host of rank 0, where programs with a server of their own expect that server.
std::string Launcher::master() const {
  const Remote& first = remotes_.front();
  if (!first.local) return first.host.name.substr(first.host.name.find('@') + 1);
  for (const std::string& address : addresses_)
    if (!address.starts_with("ssh:")) return transport::parse_endpoint(address).host;
  return "127.0.0.1";
}

// ---- input and output of agents ----

/// Sends each agent its ticket, and then sends the standard input of kolorun to the first agent,
/// for rank 0.
void Launcher::copy_input() {
  for (Remote& remote : remotes_) {
    if (!remote.input.valid()) continue;
    const bool passes_on = has_input_ && &remote == &remotes_.front();
    std::array<char, 16384> buffer;
    pollfd ready{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
    if (remote.unsent.empty() && passes_on && ::poll(&ready, 1, 0) > 0) {
      const ssize_t bytes = ::read(STDIN_FILENO, buffer.data(), buffer.size());
      has_input_ = bytes > 0 || (bytes < 0 && (errno == EAGAIN || errno == EINTR));
      if (bytes > 0) remote.unsent.assign(buffer.data(), static_cast<std::size_t>(bytes));
    }
    const ssize_t sent = remote.unsent.empty() ? 0
                                               : ::write(remote.input.get(), remote.unsent.data(),
                                                         remote.unsent.size());
    if (sent > 0) remote.unsent.erase(0, static_cast<std::size_t>(sent));
    const bool nobody_reads = sent < 0 && errno != EAGAIN && errno != EINTR;
    const bool all_is_sent = remote.unsent.empty() && !(passes_on && has_input_);
    if (!nobody_reads && !all_is_sent) continue;
    remote.unsent.clear();
    remote.input = node::FileDescriptor();
  }
}

void Launcher::copy_output() {
  for (Remote& remote : remotes_)
    std::erase_if(remote.streams, [](TaggedStream& stream) {
      if (stream.copy()) return false;
      stream.finish();
      return true;
    });
}

}  // namespace kolorun
