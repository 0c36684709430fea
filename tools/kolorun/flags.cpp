// SPDX-License-Identifier: Apache-2.0
#include "flags.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <kolo/error.hpp>
#include <kolo/version.hpp>
#include <numeric>
#include <span>
#include <sstream>
#include <system_error>

#include "hosts/allocation.hpp"
#include "node/file_descriptor.hpp"
#include "node/random.hpp"
#include "rendezvous/tcp_rendezvous.hpp"
#include "timeouts.hpp"

namespace kolorun {
namespace {

constexpr std::chrono::milliseconds patience_with_pipes{60'000};

rendezvous::Time seconds(double count) {
  return std::chrono::duration_cast<rendezvous::Time>(std::chrono::duration<double>(count));
}

/// A pipe may be empty for a while, and whoever types takes as long as he likes.
bool is_readable_in_time(int file) {
  pollfd waits{.fd = file, .events = POLLIN, .revents = 0};
  const int patience = ::isatty(file) != 0 ? -1 : static_cast<int>(patience_with_pipes.count());
  return ::poll(&waits, 1, patience) != 0;
}

rendezvous::Secret read_secret(const std::string& path) {
  // A named pipe without a writer would block the call.
  const node::FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file.valid())
    throw UsageError(fmt::format("--secret-file: '{}' cannot be read: {}", path,
                                 std::generic_category().message(errno)));
  struct stat status {};
  // The permissions of a terminal say nothing: only this process reads what is typed.
  if (::fstat(file.get(), &status) == 0 && (S_ISREG(status.st_mode) || S_ISFIFO(status.st_mode))) {
    const bool is_own = status.st_uid == ::geteuid();
    if (!is_own && status.st_uid != 0)
      throw UsageError(
          fmt::format("--secret-file: '{}' belongs to another user, who knows it; make "
                      "a file of your own",
                      path));
    // A file that root has provided, as container engines do, is readable by group or others.
    if ((status.st_mode & (is_own ? S_IRWXG | S_IRWXO : S_IWGRP | S_IWOTH)) != 0)
      throw UsageError(
          fmt::format("--secret-file: others can read or change '{0}'; draw a new "
                      "secret into it after `chmod 600 {0}`",
                      path));
  }
  std::string text;
  std::array<char, 256> piece{};
  // To the end of the first word: a pipe may stay open.
  std::string word;
  do {
    if (!is_readable_in_time(file.get()))
      throw UsageError(fmt::format("--secret-file: nothing came out of '{}' for {} s", path,
                                   patience_with_pipes / std::chrono::seconds(1)));
    const ssize_t bytes = ::read(file.get(), piece.data(), piece.size());
    if (bytes < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (bytes <= 0) break;
    text.append(piece.data(), static_cast<std::size_t>(bytes));
    std::istringstream words(text);
    words >> word;
  } while (text.size() < piece.size() && (word.empty() || text.ends_with(word)));
  if (word.empty()) throw UsageError(fmt::format("--secret-file: '{}' cannot be read", path));
  try {
    return rendezvous::secret_from_hex(word);
  } catch (const kolo::Error& error) {
    throw UsageError(fmt::format("--secret-file: '{}': {}", path, error.what()));
  }
}

rendezvous::Secret make_secret() {
  rendezvous::Secret secret;
  kolo::internal::fill_random(secret);
  return secret;
}

void read_cooldown(const std::string& text, rendezvous::ServerOptions& server) {
  double min = 0;
  double max = 0;
  int used = 0;
  if (std::sscanf(text.c_str(), "%lf:%lf%n", &min, &max, &used) != 2 ||
      used != static_cast<int>(text.size()) || !(min >= 0.01 && min <= max && max <= 1e6))
    throw UsageError(fmt::format("--cooldown: '{}' is not MIN:MAX, in seconds", text));
  server.min_cooldown = seconds(min);
  server.max_cooldown = seconds(max);
}

void fill_server(const Flags& flags, Options& options) {
  rendezvous::ServerOptions& server = options.server;
  server.version = kolo::version;
  server.elastic = flags.min_np > 0 || flags.max_np > 0;
  server.min_np = flags.min_np > 0 ? flags.min_np : server.np;
  server.max_np = flags.max_np > 0 ? flags.max_np : server.np;
  if (server.min_np > server.np || server.np > server.max_np)
    throw UsageError(fmt::format("--min-np {}, -np {} and --max-np {} must not decrease",
                                 server.min_np, server.np, server.max_np));
  if (server.elastic && server.max_restarts > 0)
    throw UsageError(
        "--max-restarts is for jobs that are not elastic; with --min-np or --max-np, lost "
        "processes "
        "are started again one by one");
  server.start_timeout = server.collective_timeout = seconds(flags.start_timeout);
  server.elastic_timeout = seconds(flags.elastic_timeout);
  server.lease = seconds(flags.lease);
  read_cooldown(flags.cooldown, server);
}

/// The command that starts an agent on another host, without the host.
std::vector<std::string> split_rsh(const std::string& option) {
  const char* const variable = std::getenv("KOLO_RSH");
  std::istringstream words(!option.empty() ? option : variable != nullptr ? variable : "");
  std::vector<std::string> command;
  for (std::string word; words >> word;) command.push_back(word);
  return command;
}

int slots_of(const std::vector<Host>& hosts) {
  return std::accumulate(hosts.begin(), hosts.end(), 0,
                         [](int sum, const Host& host) { return sum + host.slots; });
}

std::string describe(const std::vector<Host>& hosts) {
  constexpr std::size_t shown = 4;
  std::string text;
  for (const Host& host : std::span(hosts).first(std::min(hosts.size(), shown)))
    text += fmt::format("{}{}:{}", text.empty() ? "" : ",", host.name, host.slots);
  return hosts.size() > shown ? text + ",..." : text;
}

/// Takes the hosts from the batch job in which kolorun runs, if it runs in one.
void use_allocation(const Flags& flags, Options& options) {
  std::optional<Allocation> found = find_allocation();
  if (!found) return;
  options.hosts = std::move(found->hosts);
  for (Host& host : options.hosts)
    if (flags.slots > 0) host.slots = flags.slots;
  const int slots = slots_of(options.hosts);
  if (flags.np > slots)
    throw UsageError(fmt::format(
        "{} has {} slots ({}), too few for {} processes: {}, or set the slots of each host with "
        "--slots, or name hosts with -H, such as -H localhost:{}",
        found->name, slots, describe(options.hosts), flags.np, found->request, flags.np));
  options.allocation = fmt::format("{} ({})", found->name, describe(options.hosts));
  if (options.rsh.empty()) options.rsh = std::move(found->rsh);
}

void fill_hosts(const Flags& flags, bool is_agent, Options& options) {
  const bool discovers = !options.discovery_script.empty();
  if (int{!flags.hosts.empty()} + int{!flags.hostfile.empty()} + int{discovers} > 1)
    throw UsageError("only one of -H, --hostfile and --host-discovery-script can name the hosts");
  if (!flags.hosts.empty()) options.hosts = parse_hosts(flags.hosts);
  if (!flags.hostfile.empty()) options.hosts = read_hostfile(flags.hostfile);
  options.rsh = split_rsh(flags.rsh);
  if (!is_agent && options.hosts.empty() && !discovers && flags.rendezvous.empty())
    use_allocation(flags, options);
  if (options.rsh.empty()) options.rsh.emplace_back("ssh");
  options.grace = seconds(flags.grace);
  options.timeout = seconds(flags.timeout);
  // Agents must have ended their processes before the job can start again.
  options.server.end_timeout =
      std::max(options.server.end_timeout, options.grace + std::chrono::seconds(5));
  if (discovers && flags.min_np == 0 && flags.max_np == 0)
    throw UsageError("--host-discovery-script needs --min-np or --max-np");
}

transport::Endpoint parse_address(const char* option, const std::string& text) {
  try {
    return transport::parse_endpoint(text);
  } catch (const kolo::Error& error) {
    throw UsageError(fmt::format("{}: {}", option, error.what()));
  }
}

void fill_rendezvous(const Flags& flags, Options& options) {
  const bool starts_others = !options.hosts.empty() || !options.discovery_script.empty();
  const bool is_one_of_several = !flags.rendezvous.empty() && !starts_others;
  if (!flags.standby.empty() && !is_one_of_several)
    throw UsageError(
        "--standby needs --rendezvous, without -H, --hostfile and --host-discovery-script: a job "
        "that one kolorun starts on all hosts ends with it");
  if (flags.slots == 0 && !is_one_of_several)
    throw UsageError(
        "--slots 0 is for a host that only serves: with --rendezvous, and without -H, --hostfile "
        "and --host-discovery-script");
  if (flags.rendezvous.empty()) return;
  options.rendezvous = parse_address("--rendezvous", flags.rendezvous);
  if (starts_others) return;
  if (flags.secret_file.empty())
    throw UsageError(
        "--rendezvous needs --secret-file; without it, any process that can reach the port could "
        "join");
  if (flags.slots < 0) throw UsageError("--rendezvous needs --slots: the processes of this host");
  if (options.rendezvous->port == 0)
    throw UsageError("--rendezvous needs a port that all hosts know, not 0");
  if (flags.standby.empty()) return;
  options.standby = parse_address("--standby", flags.standby);
  if (options.standby->port == 0)
    throw UsageError("--standby needs a port that all hosts know, not 0");
  if (to_string(*options.standby) == to_string(*options.rendezvous))
    throw UsageError("--standby needs another address than --rendezvous");
  options.server.wants_standby = true;
}

void fill_slots(const Flags& flags, Options& options) {
  const int listed = slots_of(options.hosts);
  const bool has_list = !flags.hosts.empty() || !flags.hostfile.empty();
  if (has_list && flags.slots > 0) throw UsageError("--slots is for this host: -H has its own");
  const bool known = listed > 0 || (!options.rendezvous && options.discovery_script.empty());
  options.slots = flags.slots >= 0 ? flags.slots : known ? options.server.max_np : 1;
  if (!known) return;
  const int slots = listed > 0 ? listed : options.slots;
  if (slots < options.server.np)
    throw UsageError(
        fmt::format("{} slots are too few for {} processes", slots, options.server.np));
  // The only host of a batch job needs no agent.
  const std::vector<Host>& hosts = options.hosts;
  if (options.allocation.empty() || hosts.size() > 1 || !is_this_host(hosts.front().name)) return;
  options.slots = hosts.front().slots;
  options.hosts.clear();
}

/// The parts of the command line that must be equal on all hosts. Arguments and values may be
/// secret, and the description is neither encrypted nor kept out of logs, so they are hashed with
/// the job's secret: without it, nobody can try out which arguments have this hash. The value of
/// `-x NAME` may differ between hosts.
std::string describe_job(const Options& options, const std::vector<std::string>& variables) {
  std::string words;
  for (const std::string& variable : variables) words += variable + '\0';
  words += '\0';
  for (const std::string& word : options.command) words += word + '\0';
  // The standby goes by its own lease, and must not be faster than the server.
  if (options.standby)
    words += fmt::format("{} {}", to_string(*options.standby), options.server.lease.count());
  const std::uint64_t hash = transport::hash_with_secret(options.server.secret, words);
  const rendezvous::ServerOptions& server = options.server;
  const std::string elastic =
      server.elastic ? fmt::format("--min-np {} --max-np {} ", server.min_np, server.max_np)
      : server.max_restarts > 0 ? fmt::format("--max-restarts {} ", server.max_restarts)
                                : "";
  const std::string& program = options.command.front();
  constexpr std::size_t shown = 100;
  return fmt::format("-np {} {}{}{} (arguments and -x: {:016x})", server.np, elastic,
                     options.standby ? "--standby " : "",
                     program.substr(program.size() - std::min(program.size(), shown)), hash);
}

void fill_output(const Flags& flags, Options& options) {
  const bool has_files = !options.output_dir.empty();
  if (options.tee && !has_files)
    throw UsageError("--tee is for --output-dir; without it, all output is shown here anyway");
  if (flags.filter.empty()) return;
  if (has_files && !options.tee)
    throw UsageError("--filter is for output that is shown here: with --output-dir it needs --tee");
  options.filter = RankFilter::parse(flags.filter);
  if (!options.filter)
    throw UsageError(
        fmt::format("--filter: '{}' is not a list of ranks such as 0,4-7", flags.filter));
  if (options.filter->highest() >= options.server.max_np)
    throw UsageError(fmt::format("--filter: there is no rank {} in a job of {} processes",
                                 options.filter->highest(), options.server.max_np));
}

bool is_given(const Options& options, const std::string& name) {
  return std::ranges::any_of(options.variables, [&](const std::string& variable) {
    return variable.starts_with(name + '=');
  });
}

bool has_variable(const Options& options, const std::string& name) {
  return std::getenv(name.c_str()) != nullptr || is_given(options, name);
}

/// The ports of the server, and by a variable those of the processes.
void fill_ports(const Flags& flags, Options& options) {
  constexpr const char* name = "KOLO_PORT_RANGE";
  const char* const variable = std::getenv(name);
  const bool is_option = !flags.port_range.empty();
  const std::string text = is_option ? flags.port_range : variable == nullptr ? "" : variable;
  if (text.empty()) return;
  const auto range = kolo::internal::PortRange::parse(text);
  if (!range)
    throw UsageError(fmt::format("{}: '{}' is not two ports from 1 to 65535, such as 46000:46099",
                                 is_option ? "--port-range" : name, text));
  options.server.port_range = *range;
  if (is_option && !is_given(options, name))
    options.variables.push_back(fmt::format("{}={}", name, text));
}

void fill_variables(Options& options) {
  for (std::string& variable : options.variables) {
    const std::string given = variable.substr(0, variable.find('='));
    if (given.empty()) throw UsageError(fmt::format("-x {}: the variable has no name", variable));
    for (const char* const own : {rendezvous::server_variable, rendezvous::standby_variable,
                                  rendezvous::secret_variable, rendezvous::process_variable})
      if (given == own) throw UsageError(fmt::format("-x {}: kolorun sets this variable", given));
    if (variable.find('=') != std::string::npos) continue;
    const char* const value = std::getenv(variable.c_str());
    if (value == nullptr)
      throw UsageError(fmt::format("-x {}: the variable is not set here", variable));
    variable += fmt::format("={}", value);
  }
  // If a variable is given several times, the last one counts.
  std::vector<std::string> last;
  for (const std::string& variable : options.variables) {
    const std::string name = variable.substr(0, variable.find('=') + 1);
    std::erase_if(last, [&](const std::string& other) { return other.starts_with(name); });
    last.push_back(variable);
  }
  options.variables = std::move(last);
  const std::string& network = options.network_interface;
  if (network.empty()) return;
  if (!has_variable(options, "KOLO_CONTROL_INTERFACE"))
    options.variables.push_back("KOLO_CONTROL_INTERFACE=" + network);
  // NCCL_SOCKET_IFNAME is passed on, because the other hosts need it too.
  if (const char* const value = std::getenv("NCCL_SOCKET_IFNAME");
      value != nullptr && !is_given(options, "NCCL_SOCKET_IFNAME"))
    options.variables.push_back(fmt::format("NCCL_SOCKET_IFNAME={}", value));
  // NCCL accepts interface names only. A leading "=" makes the name exact instead of a prefix.
  if (network.find('/') == std::string::npos && !has_variable(options, "NCCL_SOCKET_IFNAME"))
    options.variables.push_back("NCCL_SOCKET_IFNAME==" + network);
}

}  // namespace

void fill_options(const Flags& flags, const std::optional<rendezvous::Secret>& secret,
                  Options& options) {
  fill_hosts(flags, secret.has_value(), options);
  options.server.np = flags.np > 0 ? flags.np : slots_of(options.hosts);
  if (options.server.np == 0) throw UsageError("-np N is missing: the number of processes");
  if (options.command.empty()) throw UsageError("the program is missing");
  fill_server(flags, options);
  fill_rendezvous(flags, options);
  fill_output(flags, options);
  const std::vector<std::string> given = options.variables;
  fill_variables(options);
  fill_ports(flags, options);
  order_timeouts(flags, options);
  if (secret) {
    options.slots = flags.slots;
    options.server.secret = *secret;
  } else {
    fill_slots(flags, options);
    options.server.secret =
        flags.secret_file.empty() ? make_secret() : read_secret(flags.secret_file);
  }
  const std::string& job = options.joining.job;
  options.server.job = job.empty() ? describe_job(options, given) : job;
}

}  // namespace kolorun
