// SPDX-License-Identifier: Apache-2.0
// The names of kolorun's options; flags.cpp checks their values.
#include "options.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <kolo/version.hpp>
#include <map>

#include "flags.hpp"

namespace kolorun {
namespace {

constexpr const char* description =
    "Starts the processes of a job, and ends them together.\n\n"
    "  kolorun -np 4 ./train --epochs 10\n"
    "  kolorun -H node1:4,node2:4 ./train                                        # by ssh\n"
    "  kolorun ./train                                       # in a job of Slurm, PBS or LSF\n"
    "  kolorun -np 8 --rendezvous node1:4711 --slots 4 --secret-file s ./train   # on each host\n"
    "  kolorun -np 4 --min-np 2 --max-np 8 --host-discovery-script ./hosts ./train\n\n"
    "Each process finds RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and\n"
    "MASTER_PORT in its environment, and KOLO_RENDEZVOUS, KOLO_RENDEZVOUS_SECRET and\n"
    "KOLO_RENDEZVOUS_PROCESS, by which it reaches the rendezvous server inside kolorun. A process\n"
    "that is started again after a loss has no RANK. KOLO_RESTARTS counts the times that the "
    "whole\n"
    "job has been started again.\n";

constexpr const char* footer =
    "Rank 0 reads kolorun's standard input, unless that is a terminal; the others read nothing.\n\n"
    "SIGINT, SIGTERM and SIGHUP end the job: the processes get SIGTERM, and SIGKILL after --grace. "
    "After SIGTERM\nthe exit status is 0 if all processes end with 0, as programs may that handle "
    "this signal. A second signal,\nmore than a second after SIGTERM, kills them at once. With "
    "--min-np or --max-np, SIGTERM to a kolorun that does not\nserve removes its host from the job "
    "at the next commit. SIGUSR1, SIGUSR2 and SIGCONT are passed on to the processes of all "
    "hosts. On one host, Ctrl-Z stops\nthem until kolorun is continued.\n\n"
    "Exit status: 0 if all processes have ended with 0; that of the first process that failed; 128 "
    "plus the\nsignal's number if a signal has ended it, or kolorun; 127 if the program cannot be "
    "run; 1 if the job\nfailed otherwise; 2 for a command line that cannot be used.";

/// CLI::Range accepts NaN.
CLI::Validator seconds(double least, double most) {
  const CLI::Validator is_number(
      [](const std::string& text) {
        return std::isnan(std::strtod(text.c_str(), nullptr)) ? "NaN is no time" : std::string();
      },
      "");
  return CLI::Range(least, most) & is_number;
}

std::map<std::string, Binding> bindings() {
  return {{"none", Binding::none}, {"core", Binding::core}, {"numa", Binding::numa}};
}

void add_job(CLI::App& app, Flags& flags, Options& options) {
  app.add_option(
         "-n,--np,--num-proc", flags.np,
         "Number of processes of the job, with --max-np the fewest with which it starts (default: "
         "all slots of the hosts)")
      ->check(CLI::Range(1, rendezvous::max_ranks));
  app.add_option("-x", options.variables,
                 "Variable of the processes: NAME=value, or NAME for the value it has here. May be "
                 "repeated. Other hosts get these and all that begin with KOLO_")
      ->allow_extra_args(false);
  app.add_option(
      "--wdir", options.wdir,
      "Directory of the processes on all hosts, and of --output-dir (default: this one)");
  app.add_option(
         "--bind-to", options.binding,
         "Processors of each process: core: an equal share of the cores that kolorun may use on "
         "the host, in the order of the ranks; numa: one NUMA node; none: all of them")
      ->transform(CLI::Transformer(bindings()).description("none, core or numa"))
      ->default_str("none");
  app.add_option("--start-timeout", flags.start_timeout,
                 "Seconds until all processes must have started their first session")
      ->check(seconds(0.1, 1e6))
      ->capture_default_str();
  app.add_option(
         "--grace", flags.grace,
         "Seconds that a process has to end after kolorun has sent it SIGTERM; then it gets "
         "SIGKILL")
      ->check(seconds(0.0, 1e6))
      ->capture_default_str();
  app.add_option("--timeout", flags.timeout,
                 "Seconds that the job may take, with its restarts; then it ends as after SIGTERM "
                 "(default: no limit)")
      ->check(seconds(0.001, 1e9));
  app.add_option("--max-restarts", options.server.max_restarts,
                 "How many times a job that has failed starts again, with new processes. Not for "
                 "elastic jobs, nor after a signal to kolorun or --timeout. KOLO_RESTARTS is the "
                 "number of restarts so far")
      ->check(CLI::Range(0, 1'000'000'000))
      ->capture_default_str();
  app.add_option(
         "--lease", flags.lease,
         "A host that is silent for this many seconds is lost; its processes end after half "
         "of it")
      ->check(seconds(0.5, 1e6))
      ->capture_default_str();
}

void add_hosts(CLI::App& app, Flags& flags, Options& options) {
  app.add_option("-H,--host", flags.hosts,
                 "Hosts and how many processes each can run, as a:4,b:4; ssh starts a kolorun at "
                 "the same path there. The ranks are numbered in this order. Default: the hosts of "
                 "the Slurm, PBS or LSF job in which kolorun runs, otherwise this one");
  app.add_option("--hostfile", flags.hostfile,
                 "File with the hosts: lines such as 'a slots=4' or 'a:4'");
  app.add_option(
      "--rsh", flags.rsh,
      "Command to use instead of ssh; its last arguments are the host and a command "
      "(default: KOLO_RSH, or ssh; srun or blaunch for the hosts of a Slurm or LSF job)");
  app.add_option("--fanout", options.fanout,
                 "How many of these commands may start agents at the same time")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str();
  app.add_option(
         "--slots", flags.slots,
         "Processes that this host can run (default: all), in a batch job each of its hosts. "
         "--rendezvous without -H and --hostfile needs it. With a discovery script: those of a "
         "host without a number (default: 1). 0: with --rendezvous, a host that only serves")
      ->check(CLI::Range(0, rendezvous::max_ranks));
  app.add_option("--rendezvous", flags.rendezvous,
                 "HOST:PORT of the rendezvous server. Without -H and --hostfile, run the same "
                 "command on each host; the one that has this address serves");
  app.add_option("--standby", flags.standby,
                 "HOST:PORT of a second server, which takes over if the one at --rendezvous is "
                 "lost; the kolorun that has this address runs it. Not for -H and --hostfile");
  app.add_option("--port-range", flags.port_range,
                 "Ports at which kolorun and the sessions of the processes listen, such as "
                 "46000:46099 (default: KOLO_PORT_RANGE, or any). Sets KOLO_PORT_RANGE");
  app.add_option(
      "--secret-file", flags.secret_file,
      "File with 64 hex digits, the same on all hosts: only those who know them can join. "
      "--rendezvous without -H and --hostfile needs it");
  app.add_option("--network-interface", options.network_interface,
                 "Interfaces and networks between the hosts, such as eth1,10.1.0.0/16 (default: "
                 "all that are up). Sets KOLO_CONTROL_INTERFACE, and NCCL_SOCKET_IFNAME if all are "
                 "interfaces, unless these have values");
}

void add_output(CLI::App& app, Flags& flags, Options& options) {
  app.add_flag("--tag-output", options.tag_output, "Begin each line of output with the rank");
  app.add_option(
      "--output-dir", options.output_dir,
      "Write the output of each process to DIR/rank.N.out and .err instead, on its "
      "host; DIR/process.N for processes that are started later, and DIR/restart.M/rank.N "
      "after a restart");
  app.add_flag("--tee", options.tee, "With --output-dir: also show the output here");
  app.add_option("--filter", flags.filter,
                 "Show the output only of these ranks, such as 0,4-7. Files get that of all ranks");
  app.add_flag("-v,--verbose", options.verbose, "Report what joins, leaves and is lost");
  app.set_version_flag("--version", "kolorun " + std::string(kolo::version));
}

void add_elastic(CLI::App& app, Flags& flags, Options& options) {
  app.add_option("--min-np", flags.min_np,
                 "Continue with as few as this many processes, and restart lost ones")
      ->check(CLI::Range(1, rendezvous::max_ranks));
  app.add_option("--max-np", flags.max_np, "Start up to this many processes, where there are slots")
      ->check(CLI::Range(1, rendezvous::max_ranks));
  app.add_option("--host-discovery-script", options.discovery_script,
                 "Command that prints the current hosts, as lines of a hostfile; it is run "
                 "every second. New hosts join, and those that it no longer prints leave at "
                 "the next commit");
  app.add_option("--elastic-timeout", flags.elastic_timeout,
                 "Seconds after a loss within which --min-np processes must be ready to continue")
      ->check(seconds(0.1, 1e6))
      ->capture_default_str();
  app.add_option("--reset-limit", options.server.reset_limit,
                 "Losses that the job survives; the next one ends it (default: any number)")
      ->check(CLI::Range(0, 1'000'000'000));
  app.add_option("--cooldown", flags.cooldown,
                 "MIN:MAX seconds until a process is started again on a host where one was lost; "
                 "doubles with each loss")
      ->capture_default_str();
}

/// Options that launchers pass to agents. --help does not list them.
void add_joining(CLI::App& app, Joining& joining) {
  app.add_option("--join", joining.servers)->allow_extra_args(false)->group("");
  app.add_option("--join-as", joining.host)->group("");
  app.add_option("--join-number", joining.number)->group("");
  app.add_option("--join-order", joining.order)->group("");
  app.add_option("--join-master", joining.master)->group("");
  app.add_option("--join-job", joining.job)->group("");
}

}  // namespace

Options parse_options(const std::vector<std::string>& given,
                      const std::optional<rendezvous::Secret>& secret) {
  CLI::App app(description, "kolorun");
  app.footer(footer);
  Options options;
  Flags flags;
  add_job(app, flags, options);
  add_hosts(app, flags, options);
  add_output(app, flags, options);
  add_elastic(app, flags, options);
  if (secret) add_joining(app, options.joining);
  app.prefix_command();  // the arguments after the program belong to the program
  // `-np` with one dash is accepted, as mpirun writes it.
  std::vector<std::string> arguments = given;
  std::ranges::replace(arguments, "-np", "--np");
  std::ranges::reverse(arguments);
  try {
    app.parse(arguments);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() != 0) throw UsageError(error.what());
    const bool is_help = error.get_name() == "CallForHelp";
    options.answer = is_help ? app.help() : std::string(error.what()) + '\n';
    // Adds the program to the usage line, because CLI11 does not know of it.
    const std::string usage = "Usage: kolorun [OPTIONS]";
    if (const auto at = options.answer.find(usage); at != std::string::npos)
      options.answer.insert(at + usage.size(), " PROGRAM [ARGUMENTS...]");
    return options;
  }
  const auto rest = static_cast<std::ptrdiff_t>(app.remaining().size());
  options.command.assign(given.end() - rest, given.end());
  if (rest > 0 && options.command.front() == "--") options.command.erase(options.command.begin());
  if (!options.command.empty() && options.command.front().starts_with('-'))
    throw UsageError(fmt::format("there is no option {}", options.command.front()));
  fill_options(flags, secret, options);
  return options;
}

}  // namespace kolorun
