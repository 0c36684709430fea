// SPDX-License-Identifier: Apache-2.0
#include "options.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <kolo/error.hpp>
#include <kolo/version.hpp>
#include <random>

#include "rendezvous/tcp_rendezvous.hpp"

namespace kolorun {
namespace {

constexpr const char* description =
    "Starts the processes of a job, and ends them together.\n\n"
    "  kolorun -np 4 ./train --epochs 10\n"
    "  kolorun -np 8 --rendezvous node1:4711 --slots 4 --secret-file s ./train   # on each host\n\n"
    "Each process finds RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and\n"
    "MASTER_PORT in its environment, and KOLO_RENDEZVOUS, KOLO_RENDEZVOUS_SECRET and\n"
    "KOLO_RENDEZVOUS_PROCESS, by which it reaches the rendezvous server inside kolorun. A process\n"
    "that is started again after a loss has no RANK.\n";

constexpr const char* footer =
    "Rank 0 reads kolorun's standard input, unless that is a terminal; the others read nothing.\n\n"
    "SIGINT, SIGTERM and SIGHUP end the job: the processes get SIGTERM, and SIGKILL 5 s later. "
    "With "
    "--min-np or\n--max-np, SIGTERM to a kolorun that does not serve removes its host from the job "
    "at the next commit.\nSIGUSR1, SIGUSR2 and SIGCONT are passed on to the processes.\n\n"
    "Exit status: 0 if all processes have ended with 0; that of the first process that failed; 128 "
    "and the\nsignal's number if a signal has ended it, or kolorun; 127 if the program cannot be "
    "run; 1 if the job\nfailed otherwise; 2 for a command line that cannot be used.";

/// The options as written on the command line.
struct Flags {
  int np = 0;
  int slots = 0;
  int min_np = 0;
  int max_np = 0;
  std::string rendezvous;
  std::string secret_file;
  std::string cooldown = "10:600";
  double start_timeout = 600;
  double elastic_timeout = 600;
  double lease = 10;
};

rendezvous::Time seconds(double count) {
  return std::chrono::duration_cast<rendezvous::Time>(std::chrono::duration<double>(count));
}

void add_job(CLI::App& app, Flags& flags, Options& options) {
  app.add_option("-n,--np,--num-proc", flags.np, "Number of processes of the job")
      ->check(CLI::Range(1, rendezvous::max_ranks));
  app.add_option("--slots", flags.slots,
                 "Processes that this host can run (default: all, without --rendezvous)")
      ->check(CLI::Range(1, rendezvous::max_ranks));
  app.add_option("--rendezvous", flags.rendezvous,
                 "HOST:PORT of the rendezvous server, for jobs on several hosts: run the same "
                 "command on each host; the one that has this address serves");
  app.add_option("--secret-file", flags.secret_file,
                 "File with 64 hex digits, the same on all hosts: only who knows them takes part. "
                 "--rendezvous needs it");
  app.add_option("-x", options.variables,
                 "Variable of the processes: NAME=value, or NAME for the value it has here. May be "
                 "repeated")
      ->allow_extra_args(false);
  app.add_option("--start-timeout", flags.start_timeout,
                 "Seconds until all processes must have started their first session")
      ->check(CLI::Range(0.1, 1e6))
      ->capture_default_str();
  app.add_option(
         "--lease", flags.lease,
         "A host that is silent for this many seconds is lost; its processes end after half "
         "of it")
      ->check(CLI::Range(0.5, 1e6))
      ->capture_default_str();
}

void add_output(CLI::App& app, Options& options) {
  app.add_flag("--tag-output", options.tag_output, "Begin each line of output with the rank");
  app.add_option("--output-dir", options.output_dir,
                 "Write the output of each process to DIR/rank.N.out and .err instead; "
                 "DIR/process.N for processes that are started later");
  app.add_flag("-v,--verbose", options.verbose, "Say who joins, leaves and is lost");
  app.set_version_flag("--version", "kolorun " + std::string(kolo::version));
}

void add_elastic(CLI::App& app, Flags& flags, Options& options) {
  app.add_option("--min-np", flags.min_np, "Go on with as few processes, and start lost ones anew")
      ->check(CLI::Range(1, rendezvous::max_ranks));
  app.add_option("--max-np", flags.max_np, "Start more, up to this number, where there are slots")
      ->check(CLI::Range(1, rendezvous::max_ranks));
  app.add_option("--elastic-timeout", flags.elastic_timeout,
                 "Seconds after a loss until at least --min-np processes must have met again")
      ->check(CLI::Range(0.1, 1e6))
      ->capture_default_str();
  app.add_option("--reset-limit", options.server.reset_limit,
                 "Losses after which the job fails (default: any number)")
      ->check(CLI::Range(0, 1'000'000'000));
  app.add_option("--cooldown", flags.cooldown,
                 "MIN:MAX seconds until a process is started again on a host where one was lost; "
                 "doubles with each loss")
      ->capture_default_str();
}

rendezvous::Secret read_secret(const std::string& path) {
  std::ifstream file(path);
  std::string text;
  if (!(file >> text)) throw UsageError(fmt::format("--secret-file: '{}' cannot be read", path));
  try {
    return rendezvous::secret_from_hex(text);
  } catch (const kolo::Error& error) {
    throw UsageError(fmt::format("--secret-file: '{}': {}", path, error.what()));
  }
}

rendezvous::Secret make_secret() {
  std::random_device random;
  rendezvous::Secret secret;
  for (std::byte& byte : secret) byte = static_cast<std::byte>(random());
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
  server.np = flags.np;
  server.elastic = flags.min_np > 0 || flags.max_np > 0;
  server.min_np = flags.min_np > 0 ? flags.min_np : flags.np;
  server.max_np = flags.max_np > 0 ? flags.max_np : flags.np;
  if (server.min_np > server.np || server.np > server.max_np)
    throw UsageError(fmt::format("--min-np {}, -np {} and --max-np {} must not decrease",
                                 server.min_np, server.np, server.max_np));
  server.start_timeout = server.collective_timeout = seconds(flags.start_timeout);
  server.elastic_timeout = seconds(flags.elastic_timeout);
  server.lease = seconds(flags.lease);
  read_cooldown(flags.cooldown, server);
  server.secret = flags.secret_file.empty() ? make_secret() : read_secret(flags.secret_file);
}

void fill(const Flags& flags, Options& options) {
  if (flags.np == 0) throw UsageError("-np N is missing: the number of processes");
  if (options.command.empty()) throw UsageError("the program is missing");
  fill_server(flags, options);
  options.slots = flags.slots;
  if (!flags.rendezvous.empty()) {
    if (flags.secret_file.empty())
      throw UsageError(
          "--rendezvous needs --secret-file, since whoever reaches the port could join");
    if (flags.slots == 0)
      throw UsageError("--rendezvous needs --slots: the processes of this host");
    try {
      options.rendezvous = rendezvous::parse_endpoint(flags.rendezvous);
    } catch (const kolo::Error& error) {
      throw UsageError(fmt::format("--rendezvous: {}", error.what()));
    }
  } else {
    if (options.slots == 0) options.slots = options.server.max_np;
    if (options.slots < options.server.min_np)
      throw UsageError(fmt::format("--slots {} are too few for {} processes on this host",
                                   options.slots, options.server.min_np));
  }
  for (std::string& variable : options.variables) {
    if (variable.find('=') != std::string::npos) continue;
    const char* const value = std::getenv(variable.c_str());
    if (value == nullptr) throw UsageError(fmt::format("-x {}: it has no value here", variable));
    variable += fmt::format("={}", value);
  }
}

}  // namespace

Options parse_options(int argc, const char* const* argv) {
  CLI::App app(description, "kolorun");
  app.footer(footer);
  Options options;
  Flags flags;
  add_job(app, flags, options);
  add_output(app, options);
  add_elastic(app, flags, options);
  app.prefix_command();  // what follows the program is the program's
  // mpirun's way of writing it has one dash.
  std::vector<std::string> arguments(argv + 1, argv + argc);
  std::ranges::replace(arguments, "-np", "--np");
  std::ranges::reverse(arguments);
  try {
    app.parse(arguments);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() != 0) throw UsageError(error.what());
    const bool is_help = error.get_name() == "CallForHelp";
    options.answer = is_help ? app.help() : std::string(error.what()) + '\n';
    // CLI11 does not know of the program.
    const std::string usage = "Usage: kolorun [OPTIONS]";
    if (const auto at = options.answer.find(usage); at != std::string::npos)
      options.answer.insert(at + usage.size(), " -np N PROGRAM [ARGUMENTS...]");
    return options;
  }
  const auto rest = static_cast<std::ptrdiff_t>(app.remaining().size());
  options.command.assign(argv + argc - rest, argv + argc);
  if (rest > 0 && options.command.front().starts_with('-'))
    throw UsageError(fmt::format("there is no option {}", options.command.front()));
  fill(flags, options);
  return options;
}

}  // namespace kolorun
