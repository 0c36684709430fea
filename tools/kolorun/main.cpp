// SPDX-License-Identifier: Apache-2.0
// Starts the processes of a job:
//
//     kolorun -np 4 ./train
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <functional>
#include <kolo/error.hpp>
#include <kolo/version.hpp>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "agent.hpp"
#include "child.hpp"
#include "launcher.hpp"
#include "options.hpp"
#include "output/error_files.hpp"
#include "output/writing.hpp"
#include "servers/server_search.hpp"
#include "serving.hpp"
#include "ticket.hpp"
#include "transport/machine.hpp"

namespace kolorun {
namespace {

constexpr int usage_status = 2;
// An attempt that fails sooner than this makes the next one wait.
constexpr std::chrono::seconds quick_failure{10};

void enter_directory(const std::string& path) {
  std::error_code error;
  if (!path.empty()) std::filesystem::current_path(path, error);
  if (error)
    throw std::runtime_error(fmt::format("the directory of the processes, {}, on host {}: {}", path,
                                         transport::host_name(), error.message()));
  if (path.empty()) return;
  // Shells believe PWD if it is a path of the current directory. They would resolve ".." in its
  // text, and so leave the directory by another way than the kernel.
  const std::filesystem::path named(path);
  const bool is_plain =
      named.is_absolute() && named.lexically_normal() == named && named.has_filename();
  ::setenv("PWD", is_plain ? path.c_str() : std::filesystem::current_path().c_str(), 1);
}

StandbyState ask_standby_of(const Options& options) {
  if (!options.standby) return StandbyState::idle;
  return ask_standby(*options.standby,
                     {.role = rendezvous::Role::agent,
                      .host = transport::host_name(),
                      .version = std::string(kolo::version),
                      .job = options.server.job},
                     options.server.secret);
}

/// Starts the server if it can run in this process. Otherwise `problem` has the reason: another
/// kolorun may be the server, on this host or another. The server of a job that has just lost one
/// may be the standby soon, and a second one would begin the same job once more.
std::unique_ptr<Serving> try_to_serve(const Options& options, std::string& problem) {
  if (!options.rendezvous)
    return std::make_unique<Serving>(options, transport::Endpoint{"127.0.0.1", 0});
  try {
    auto serving = std::make_unique<Serving>(options, *options.rendezvous);
    if (ask_standby_of(options) == StandbyState::idle) return serving;
    problem = fmt::format("the standby at {} has the processes of a job that runs",
                          transport::to_string(*options.standby));
  } catch (const kolo::BackendError& error) {
    problem = error.what();
  }
  return nullptr;
}

/// Starts the standby if its address is that of this process.
std::unique_ptr<Serving> try_to_stand_by(const Options& options) {
  if (!options.standby) return nullptr;
  Options standing_by = options;
  standing_by.server.stands_by = true;
  try {
    return std::make_unique<Serving>(standing_by, *options.standby);
  } catch (const kolo::BackendError& error) {
    if (is_this_host(options.standby->host))  // otherwise that of another host stands by
      write_all(STDERR_FILENO,
                fmt::format("kolorun: this kolorun does not stand by: {}\n", error.what()));
    return nullptr;
  }
}

/// True if the job has gone on without the first server: a kolorun at its address joins the job
/// then, and begins no other.
bool runs_elsewhere(const Options& options) {
  return ask_standby_of(options) == StandbyState::rules;
}

/// Where the ranks of this host write their flight records; "" if they do not.
std::string flight_record_folder(const Options& options) {
  constexpr std::string_view name = "KOLO_FLIGHT_RECORDER_DIR=";
  const char* const variable = std::getenv("KOLO_FLIGHT_RECORDER_DIR");
  std::string folder = variable == nullptr ? "." : variable;
  for (const std::string& given : options.variables)
    if (given.starts_with(name)) folder = given.substr(name.size());
  return folder == "off" ? "" : folder;
}

/// The last thing on the screen: what has failed first, and what it has said.
int report(const Options& options, const rendezvous::JobEnd& end, double seconds) {
  write_job_error_file(options.output_dir, end, options.server.restarts);
  std::string text;
  if (!end.last_lines.empty() && !end.reason.empty()) {
    text += "kolorun: the last lines that the process which has failed first wrote:\n";
    std::istringstream lines(end.last_lines);
    for (std::string line; std::getline(lines, line);) text += "    " + line + '\n';
  }
  if (!end.reason.empty() && !end.waits.empty()) text += fmt::format("kolorun: {}\n", end.waits);
  const std::string records =
      end.reason.empty() ? "" : flight_records_in(flight_record_folder(options), seconds);
  if (!records.empty())
    text += fmt::format("kolorun: what the ranks were waiting for: kolo-diagnose {}\n", records);
  if (!end.reason.empty()) text += fmt::format("kolorun: the job has failed: {}\n", end.reason);
  if (!text.empty()) flush_output();  // standard output has a writer of its own
  write_all(STDERR_FILENO, text);
  return end.status;
}

/// Waits for agents on other hosts to end their processes. A signal to end stops the wait.
rendezvous::JobEnd wait_for_agents(Serving& serving, const node::FileDescriptor& signals) {
  while (true) {
    std::array<pollfd, 2> waits{{{.fd = serving.descriptor(), .events = POLLIN, .revents = 0},
                                 {.fd = signals.get(), .events = POLLIN, .revents = 0}}};
    ::poll(waits.data(), waits.size(), -1);
    if (waits[0].revents != 0) return serving.wait();
    while (const std::optional<int> signal = next_signal(signals))
      if (signal == SIGINT || signal == SIGTERM || signal == SIGHUP) serving.stop();
  }
}

/// Runs the processes of this host: the only host, or one of several on which the user starts
/// kolorun.
rendezvous::JobEnd run_host(const Options& options, const node::FileDescriptor& signals) {
  std::string no_server;
  const bool joins = runs_elsewhere(options);
  std::unique_ptr<Serving> serving = joins ? nullptr : try_to_serve(options, no_server);
  std::unique_ptr<Serving> standby = serving || joins ? nullptr : try_to_stand_by(options);
  std::vector<transport::Endpoint> servers;
  if (!joins)
    servers.push_back(options.rendezvous ? *options.rendezvous
                                         : transport::Endpoint{"127.0.0.1", serving->port()});
  if (options.standby && !serving) servers.push_back(*options.standby);
  bool is_ending = false;  // by a signal
  const std::function<void(int)> pass_signal = [&](int signal) {
    serving->pass_signal(signal);
    is_ending |= signal == SIGINT || signal == SIGTERM || signal == SIGHUP;
  };
  rendezvous::JobEnd end;
  bool whole = false;  // the whole job has ended, not only this host
  {
    Agent agent(options, servers, serving ? pass_signal : nullptr, signals);
    if (!serving && !joins)
      agent.may_serve([&](std::string& why_not) {
        serving = try_to_serve(options, why_not);
        if (serving) standby.reset();
        return serving ? pass_signal : nullptr;
      });
    if (standby)
      agent.stands_by({.take_over =
                           [&] {
                             serving = std::move(standby);
                             return pass_signal;
                           },
                       .rules = [&] { return standby && standby->rules(); },
                       .ruling = standby->ruling_descriptor()});
    end.status = agent.run();
    end.restarts = agent.restarts();
    whole = agent.was_told() || is_ending;
  }
  return serving && whole ? wait_for_agents(*serving, signals) : end;
}

/// Longer each time, because a host may be starting up.
std::chrono::milliseconds pause_after(int quick_failures) {
  constexpr std::chrono::milliseconds longest{60'000};
  if (quick_failures == 0) return {};
  return std::min(longest, std::chrono::milliseconds(250) * (1 << std::min(quick_failures, 10)));
}

/// Returns false if a signal ends kolorun meanwhile.
bool pause(std::chrono::milliseconds time, const node::FileDescriptor& signals) {
  const auto until = std::chrono::steady_clock::now() + time;
  while (!is_told_to_end()) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(until - std::chrono::steady_clock::now());
    if (left.count() <= 0) return true;
    pollfd waits{.fd = signals.get(), .events = POLLIN, .revents = 0};
    ::poll(&waits, 1, static_cast<int>(left.count()));
    while (next_signal(signals)) {
    }
  }
  return false;
}

/// Runs the job, and starts it again as often as --max-restarts allows.
int run_job(Options& options, const node::FileDescriptor& signals) {
  const bool is_here = options.hosts.empty() && options.discovery_script.empty();
  if (is_here) enter_directory(options.wdir);
  start_timeout(options.timeout);
  int quick_failures = 0;
  while (true) {
    const auto begin = std::chrono::steady_clock::now();
    const rendezvous::JobEnd end =
        is_here ? run_host(options, signals) : Launcher(options, signals).run();
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begin;
    const int status = report(options, end, time.count());
    if (!end.restarts || is_told_to_end()) return status;
    const bool is_quick = time < quick_failure;
    quick_failures = is_quick ? quick_failures + 1 : 0;
    if (!pause(pause_after(quick_failures), signals)) return status;
    ++options.server.restarts;
    write_all(STDERR_FILENO, fmt::format("kolorun: the job starts again: restart {} of {}\n",
                                         options.server.restarts, options.server.max_restarts));
  }
}

/// The addresses at which the server may be.
std::vector<transport::Endpoint> addresses_in(const Joining& joining) {
  constexpr std::string_view by_ssh = "ssh:";
  std::vector<transport::Endpoint> addresses;
  for (const std::string& address : joining.servers) {
    if (!address.starts_with(by_ssh)) {
      addresses.push_back(transport::parse_endpoint(address));
      continue;
    }
    // ssh sets SSH_CONNECTION, which starts with the client's address.
    const char* const connection = std::getenv("SSH_CONNECTION");
    const std::string text = connection == nullptr ? "" : connection;
    const std::string client = text.substr(0, text.find(' '));
    if (!client.empty() && client.find('%') == std::string::npos)
      addresses.push_back(
          {client, static_cast<std::uint16_t>(std::atoi(address.c_str() + by_ssh.size()))});
  }
  return addresses;
}

/// Runs the agent that a launcher has started; standard input has its arguments.
int run_agent() {
  const Ticket ticket = read_ticket(STDIN_FILENO);
  const Options options = parse_options(ticket.arguments, ticket.secret);
  const node::FileDescriptor signals = open_signals();
  try {
    enter_directory(options.wdir);
    return Agent(options, addresses_in(options.joining), {}, signals).run();
  } catch (const std::exception& error) {
    write_all(STDERR_FILENO,
              fmt::format("kolorun on {}: {}\n", options.joining.host, error.what()));
    return 1;
  }
}

int run(const std::vector<std::string>& arguments) {
  if (arguments == std::vector<std::string>{"--agent"}) return run_agent();
  Options options = parse_options(arguments);
  if (!options.answer.empty()) {
    write_all(STDOUT_FILENO, options.answer);
    return 0;
  }
  for (const std::string& warning : options.warnings)
    write_all(STDERR_FILENO, fmt::format("kolorun: warning: {}\n", warning));
  const node::FileDescriptor signals = open_signals();
  if (options.verbose && !options.allocation.empty())
    write_all(STDERR_FILENO,
              fmt::format("kolorun: the hosts are those of {}\n", options.allocation));
  return run_job(options, signals);
}

}  // namespace
}  // namespace kolorun

int main(int argc, char** argv) {
  int status = 1;
  kolorun::open_standard_streams();
  kolorun::raise_descriptor_limit();
  try {
    status = kolorun::run({argv + 1, argv + argc});
  } catch (const kolorun::UsageError& error) {
    kolorun::write_all(STDERR_FILENO, fmt::format("kolorun: {} (see --help)\n", error.what()));
    status = kolorun::usage_status;
  } catch (const std::exception& error) {
    kolorun::write_all(STDERR_FILENO, fmt::format("kolorun: {}\n", error.what()));
  }
  kolorun::flush_output();
  return status == 0 && kolorun::has_lost_output() ? 1 : status;
}
