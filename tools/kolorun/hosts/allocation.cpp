// SPDX-License-Identifier: Apache-2.0
#include "allocation.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string_view>

#include "kolorun/options.hpp"
#include "slurm_lists.hpp"
#include "transport/machine.hpp"

namespace kolorun {
namespace {

// The number of the step in which salloc runs its shell. Its variables are those of the whole job.
constexpr std::string_view interactive_step = "4294967290";

std::string_view value_of(const char* variable) {
  const char* const text = std::getenv(variable);
  return text == nullptr ? "" : text;
}

/// The number in the variable; `otherwise` if it holds none.
int number_of(const char* variable, int otherwise) {
  const std::string_view text = value_of(variable);
  int number = otherwise;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() ? number : otherwise;
}

std::string_view without_domain(std::string_view name) { return name.substr(0, name.find('.')); }

/// Gives this host its own name, because a batch system may call it by another, or add a domain.
/// `alias`: the batch system's name of this host, if known.
std::vector<Host> rename_this_host(const std::vector<Host>& hosts, std::string_view alias = {}) {
  const std::string own = transport::host_name();
  std::vector<Host> renamed;
  for (const Host& host : hosts) {
    const bool is_own = host.name == alias || (!is_address(host.name) &&
                                               without_domain(host.name) == without_domain(own));
    add_host(renamed, {is_own ? own : host.name, host.slots});
  }
  return renamed;
}

std::vector<Host> slurm_hosts(const std::string& name) {
  const std::vector<std::string> nodes = expand_nodes(value_of("SLURM_JOB_NODELIST"));
  // Slurm counts the CPUs here if the job has asked for CPUs and not for tasks.
  std::vector<int> slots = expand_counts(value_of("SLURM_TASKS_PER_NODE"));
  if (slots.empty()) {
    slots = expand_counts(value_of("SLURM_JOB_CPUS_PER_NODE"));
    const int cpus = std::max(1, number_of("SLURM_CPUS_PER_TASK", 1));
    for (int& count : slots) count = std::max(1, count / cpus);
  }
  if (nodes.size() != slots.size())
    throw UsageError(
        fmt::format("{} has {} nodes ({}), but numbers of tasks for {} "
                    "(SLURM_TASKS_PER_NODE={}); name the hosts with -H",
                    name, nodes.size(), value_of("SLURM_JOB_NODELIST"), slots.size(),
                    value_of("SLURM_TASKS_PER_NODE")));
  std::string lines;
  for (std::size_t i = 0; i < nodes.size(); ++i)
    lines += fmt::format("{} slots={}\n", nodes[i], slots[i]);
  return rename_this_host(parse_host_lines(lines, 1, name), value_of("SLURMD_NODENAME"));
}

std::optional<Allocation> find_slurm() {
  if (value_of("SLURM_JOB_ID").empty() || value_of("SLURM_JOB_NODELIST").empty()) return {};
  const std::string name = fmt::format("Slurm's job {}", value_of("SLURM_JOB_ID"));
  const std::string_view step = value_of("SLURM_STEP_ID");
  const int tasks = step.empty() ? 1 : number_of("SLURM_STEP_NUM_TASKS", 1);
  if (tasks > 1 || number_of("SLURM_PROCID", 0) > 0)
    throw UsageError(
        fmt::format("srun has started kolorun {} times in {}: each would start a job of its own. "
                    "Start kolorun once, without srun, in a script of sbatch or a shell of salloc: "
                    "it starts the processes on all nodes. Or let srun start the program itself",
                    std::max(tasks, number_of("SLURM_PROCID", 0) + 1), name));
  if (!step.empty() && step != interactive_step) return {};
  if (const int parts = number_of("SLURM_HET_SIZE", 1); parts > 1)
    throw UsageError(
        fmt::format("{} is heterogeneous, with {} parts, and kolorun cannot choose among them; "
                    "name the hosts with -H",
                    name, parts));
  return Allocation{
      .name = name,
      .request = "ask Slurm for more tasks (--ntasks-per-node)",
      .hosts = slurm_hosts(name),
      // The agent may use all processors that the job has on its node. It is no task of an MPI job,
      // and must not seem to be one. Without --overlap, srun would wait for a free processor.
      .rsh = {"srun", "--quiet", "--overlap", "--nodes=1", "--ntasks=1", "--ntasks-per-node=1",
              "--cpu-bind=none", "--mpi=none"}};
}

/// Reads a file that names a host once per slot.
std::vector<Host> hosts_in_file(std::string_view path, const std::string& name) {
  std::ifstream file{std::string(path)};
  std::ostringstream text;
  if (!file || !(text << file.rdbuf()))
    throw UsageError(
        fmt::format("the list of hosts of {}, '{}', cannot be read or is empty; name "
                    "the hosts with -H",
                    name, path));
  return rename_this_host(parse_host_lines(text.str(), 1, std::string(path)));
}

std::optional<Allocation> find_pbs() {
  if (value_of("PBS_JOBID").empty() || value_of("PBS_NODEFILE").empty()) return {};
  const std::string name = fmt::format("PBS's job {}", value_of("PBS_JOBID"));
  return Allocation{.name = name,
                    .request = "ask PBS for more (mpiprocs, or ppn)",
                    .hosts = hosts_in_file(value_of("PBS_NODEFILE"), name)};
}

std::optional<Allocation> find_lsf() {
  const std::string_view pairs = value_of("LSB_MCPU_HOSTS");
  const std::string_view file = value_of("LSB_DJOB_HOSTFILE");
  if (value_of("LSB_JOBID").empty() || (pairs.empty() && file.empty())) return {};
  Allocation found{.name = fmt::format("LSF's job {}", value_of("LSB_JOBID")),
                   .request = "ask LSF for more (bsub -n)",
                   .rsh = {"blaunch"}};
  if (!file.empty()) {
    found.hosts = hosts_in_file(file, found.name);
    return found;
  }
  std::istringstream words{std::string(pairs)};
  std::string lines;
  for (std::string host, slots; words >> host;)
    lines += words >> slots ? fmt::format("{} slots={}\n", host, slots) : host + '\n';
  found.hosts = rename_this_host(parse_host_lines(lines, 1, found.name));
  return found;
}

}  // namespace

std::optional<Allocation> find_allocation() {
  for (const auto& find : {find_slurm, find_pbs, find_lsf}) {
    std::optional<Allocation> found = find();
    if (!found) continue;
    if (found->hosts.empty())
      throw UsageError(fmt::format("{} has no hosts; name them with -H", found->name));
    return found;
  }
  return std::nullopt;
}

}  // namespace kolorun
