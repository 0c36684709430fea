// SPDX-License-Identifier: Apache-2.0
#include "launcher.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <kolo/error.hpp>
#include <utility>

#include "agent.hpp"
#include "hosts/remote_shell.hpp"
#include "transport/socket_address.hpp"

namespace kolorun {
namespace {

using namespace std::chrono_literals;

// Timeouts of agents, and of ssh: after their processes must have ended, and from SIGTERM to
// SIGKILL.
constexpr std::chrono::seconds grace_of_agents{5};
constexpr std::chrono::seconds grace_of_second{1};

void say(const std::string& text) { write_all(STDERR_FILENO, "kolorun: " + text + '\n'); }

std::string how_it_ended(int how) {
  if (WIFSIGNALED(how)) return fmt::format("was ended by signal {}", WTERMSIG(how));
  return fmt::format("has ended with status {}", WEXITSTATUS(how));
}

/// Merges all entries that name this host into one, with the sum of their slots.
std::vector<Host> merge_this_host(const std::vector<Host>& hosts) {
  std::vector<Host> merged;
  std::optional<std::size_t> here;
  for (const Host& host : hosts) {
    const bool local = is_this_host(host.name);
    if (local && here) {
      merged[*here].slots += host.slots;
      continue;
    }
    if (local) here = merged.size();
    merged.push_back(host);
  }
  return merged;
}

/// The first hosts with enough slots for the job, so that ranks depend on the order of the list and
/// not on which host connects first. An elastic job may use all hosts.
std::vector<Host> needed(const std::vector<Host>& hosts, const rendezvous::ServerOptions& server) {
  std::vector<Host> first;
  int slots = 0;
  for (const Host& host : hosts) {
    if (!server.elastic && slots >= server.np) break;
    slots += host.slots;
    first.push_back(host);
  }
  return first;
}

/// The current directory as the shell names it, like `mpirun`. The resolved path may not exist on
/// other hosts, for example if home directories are automounted.
std::filesystem::path current_directory() {
  const char* const named = std::getenv("PWD");
  std::error_code none;  // if `named` does not exist
  if (named != nullptr && *named == '/' && std::filesystem::equivalent(named, ".", none))
    return named;
  return std::filesystem::current_path();
}

}  // namespace

Launcher::Launcher(const Options& options, const node::FileDescriptor& signals)
    : options_(options),
      program_(std::filesystem::read_symlink("/proc/self/exe").string()),
      directory_(options.wdir.empty() ? current_directory().string()
                                      : (current_directory() / options.wdir).string()),
      signals_(signals),
      cooldown_(options.server.min_cooldown, options.server.max_cooldown),
      has_input_(::isatty(STDIN_FILENO) == 0) {
  const std::vector<Host> hosts = needed(merge_this_host(options.hosts), options.server);
  const bool discovers = !options.discovery_script.empty();
  const bool all_here = !discovers && std::ranges::all_of(hosts, is_this_host, &Host::name);
  const std::string here = all_here ? "127.0.0.1" : "";
  serving_ =
      std::make_unique<Serving>(options, options.rendezvous.value_or(transport::Endpoint{here, 0}));
  const std::uint16_t port = serving_->port();
  if (options.rendezvous) {
    addresses_.push_back(transport::to_string({options.rendezvous->host, port}));
  } else if (all_here) {
    addresses_.push_back(transport::to_string({here, port}));
  } else {
    // ssh knows the address by which the other host reaches this one. With the environment of this
    // process, an agent would take the user's own computer for this host.
    if (options.network_interface.empty() && !passes_environment(options.rsh))
      addresses_.push_back(fmt::format("ssh:{}", port));
    try {
      for (transport::SocketAddress address :
           transport::choose_addresses(transport::list_interfaces(), options.network_interface)) {
        address.port = port;
        addresses_.push_back(to_string(address));
      }
    } catch (const kolo::InvalidArgument& error) {
      throw kolo::InvalidArgument(
          fmt::format("--network-interface {}: {}", options.network_interface, error.what()));
    }
  }
  if (discovers) discovery_.emplace(options.discovery_script, options.slots);
  set_hosts(hosts);
}

rendezvous::JobEnd Launcher::run() {
  bool done = false;
  while (!done || any_left()) {
    if (!serving_->ended()) {
      start_needed();
      std::string problem;
      if (discovery_) discovery_->act(problem);
      if (!problem.empty()) say(problem);
    }
    wait();
    take_signals();
    reap();
    copy_input();
    copy_output();
    pollfd over{.fd = serving_->descriptor(), .events = POLLIN, .revents = 0};
    if (!done && ::poll(&over, 1, 0) > 0) {
      done = true;
      const bool waits = serving_->ended_with_processes();
      if (!end_at_) end_at_ = Clock::now() + (waits ? options_.grace : 0s) + grace_of_agents;
      if (discovery_) discovery_->stop();
    }
    end_late();
  }
  for (Remote& remote : remotes_)
    for (TaggedStream& stream : remote.streams) {
      static_cast<void>(stream.copy(/*all=*/true));
      stream.finish();
    }
  return serving_->wait();
}

bool Launcher::any_left() const {
  return std::ranges::any_of(remotes_, [](const Remote& remote) { return remote.pid > 0; });
}

bool Launcher::has_spare() const {
  return std::ranges::any_of(
      remotes_, [this](const Remote& remote) { return state_of(remote) == HostState::spare; });
}

int Launcher::milliseconds_to_wait() const {
  auto next = Clock::now() + 10s;
  if (end_at_) next = std::min(next, *end_at_);
  if (!serving_->ended()) {
    if (discovery_) next = std::min(next, discovery_->next_time());
    const auto consider = [&, now = Clock::now()](Clock::time_point time) {
      if (time > now) next = std::min(next, time);
    };
    for (const Remote& remote : remotes_)
      if (remote.pid > 0)
        consider(remote.started + options_.server.lease);
      else if (remote.not_before)
        consider(*remote.not_before);
  }
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(next - Clock::now()).count();
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, 10'000));
}

void Launcher::wait() {
  std::vector<pollfd> waits{{.fd = signals_.get(), .events = POLLIN, .revents = 0}};
  bool held = false;
  const auto add = [&](int descriptor, short events) {
    if (descriptor >= 0) waits.push_back({.fd = descriptor, .events = events, .revents = 0});
  };
  if (!end_at_) add(serving_->descriptor(), POLLIN);
  if (!serving_->ended()) add(serving_->agents_descriptor(), POLLIN);
  if (discovery_) add(discovery_->descriptor(), POLLIN);
  for (const Remote& remote : remotes_) {
    if (!remote.unsent.empty()) add(remote.input.get(), POLLOUT);
    for (const TaggedStream& stream : remote.streams) {
      held |= stream.is_held();
      if (!stream.is_held()) add(stream.descriptor(), POLLIN);
    }
  }
  if (has_input_ && !remotes_.empty() && remotes_.front().input.valid() &&
      remotes_.front().unsent.empty())
    add(STDIN_FILENO, POLLIN);
  const int most = milliseconds_to_wait();
  ::poll(waits.data(), waits.size(), held ? std::min(most, retry_ms) : most);
}

// ---- agents that end ----

void Launcher::reap() {
  int how = 0;
  while (true) {
    const pid_t pid = ::waitpid(-1, &how, WNOHANG);
    if (pid <= 0) return;
    if (discovery_ && discovery_->runs(pid)) {
      std::string problem;
      const auto hosts = discovery_->on_end(how, problem);
      if (serving_->ended()) continue;
      if (hosts) problem = use_discovered(*hosts);
      if (!problem.empty()) say(problem);
      continue;
    }
    const auto remote = std::ranges::find(remotes_, pid, &Remote::pid);
    if (remote == remotes_.end()) continue;
    remote->pid = -1;
    remote->input = node::FileDescriptor();
    remote->unsent.clear();
    if (!serving_->ended()) on_end(*remote, how);
    if (!remote->wanted && remote->streams.empty()) remotes_.erase(remote);
  }
}

/// Applies a new list of hosts. Returns a message if that fails, for example because no descriptor
/// is free.
std::string Launcher::use_discovered(const std::vector<Host>& hosts) {
  try {
    set_hosts(merge_this_host(hosts));
  } catch (const kolo::Error& error) {
    return discovery_->news(error.what());
  }
  return "";
}

/// Handles the end of an agent while the job is running.
void Launcher::on_end(Remote& remote, int how) {
  const bool in_order = WIFEXITED(how) && WEXITSTATUS(how) == 0;
  const bool was_asked = std::exchange(remote.asked, false);
  if (!remote.wanted) return;
  const std::string what =
      fmt::format("host {}: {} {}", remote.host.name,
                  remote.local ? "its agent" : options_.rsh.front(), how_it_ended(how));
  if (!options_.server.elastic) {
    const bool cannot_run = !in_order && WIFEXITED(how) && WEXITSTATUS(how) == 127;
    serving_->end_by_host(remote.host.name, cannot_run ? 127 : 1, what);
  } else if (in_order) {
    // An agent that was asked to restart may start again. Otherwise somebody has removed the host.
    remote.not_before = was_asked ? std::nullopt : std::optional(Clock::time_point::max());
  } else {
    try_later(remote, what);
  }
}

void Launcher::try_later(Remote& remote, const std::string& why) {
  const auto now = Clock::now();
  cooldown_.fail(remote.host.name, now - begin_);
  remote.not_before = begin_ + *cooldown_.until(remote.host.name);
  const auto left = std::chrono::duration<double>(*remote.not_before - now).count();
  say(has_spare() ? fmt::format("{}; a spare host replaces it", why)
                  : fmt::format("{}; the next attempt is in {:.1f} s", why, left));
}

/// Ends agents after the end of the job, because a host may not respond. An agent whose output is
/// not being read cannot end, so it gets more time.
void Launcher::end_late() {
  if (!end_at_) return;
  if (!is_ending_ && std::ranges::any_of(remotes_, &Remote::is_held))
    end_at_ = Clock::now() + grace_of_agents;
  if (Clock::now() < *end_at_) return;
  for (const Remote& remote : remotes_)
    if (remote.pid > 0) ::kill(-remote.pid, kills_ ? SIGKILL : remote.local ? SIGTERM : SIGHUP);
  kills_ = true;
  end_at_ = Clock::now() + grace_of_agents;
}

void Launcher::take_signals() {
  while (const std::optional<int> signal = next_signal(signals_)) {
    if (signal == SIGCHLD) continue;
    if (signal == SIGTSTP) {
      say(ignored_stop);
      continue;
    }
    serving_->pass_signal(*signal);
    if (signal != SIGINT && signal != SIGTERM && signal != SIGHUP) continue;
    say(fmt::format("signal {}: the job ends", *signal));
    if (!std::exchange(is_ending_, true)) continue;
    // A second signal ends the job without waiting for hosts that do not respond.
    serving_->stop();
    end_at_ = Clock::now() + grace_of_second;
  }
}

// ---- changes of the hosts ----

void Launcher::set_hosts(const std::vector<Host>& wanted) {
  for (const Host& host : wanted) {
    const auto same = std::ranges::find(remotes_, host.name,
                                        [](const Remote& remote) { return remote.host.name; });
    if (same == remotes_.end()) {
      remotes_.push_back(
          {.host = host, .number = ++last_number_, .local = is_this_host(host.name)});
      continue;
    }
    same->host = host;
    const bool returns = !std::exchange(same->wanted, true);
    if (same->pid < 0) {
      if (returns) same->not_before.reset();
    } else if (same->slots != host.slots) {
      have_removed(*same, "the number of its slots has changed");
    } else if (same->asked) {
      serving_->keep_host(host.name);
    }
  }
  for (auto remote = remotes_.begin(); remote != remotes_.end();) {
    const auto current = remote++;
    if (std::ranges::find(wanted, current->host.name, &Host::name) != wanted.end()) continue;
    current->wanted = false;
    if (current->pid > 0)
      have_removed(*current, "it is not among the discovered hosts any more");
    else if (current->streams.empty())
      remotes_.erase(current);
  }
}

/// Asks the server for the removal each time, because the agent may have connected only now.
void Launcher::have_removed(Remote& remote, const std::string& why) {
  remote.asked = true;
  serving_->remove_host(remote.host.name, why);
}

}  // namespace kolorun
