#include "session/startup/host_record.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>

#include "kolo/version.hpp"

namespace kolo::internal::session {
namespace {

/// For each rank why it shares no memory with its host; the same for no two hosts.
std::vector<std::string> memory_problems(std::span<const SetupReport> reports,
                                         const Topology& topology) {
  std::vector<bool> fails(reports.size());  // by the lowest rank of the host
  for (std::size_t rank = 0; rank < reports.size(); ++rank)
    if (reports[rank].memory.has_problem())
      fails[static_cast<std::size_t>(topology.node_of[rank])] = true;
  std::vector<std::string> problems(reports.size());
  for (std::size_t rank = 0; rank < reports.size(); ++rank) {
    if (!fails[static_cast<std::size_t>(topology.node_of[rank])]) continue;
    problems[rank] = reports[rank].memory.has_problem() ? read_string(reports[rank].memory.problem)
                                                        : "another rank of this host cannot";
  }
  return problems;
}

}  // namespace

StartupErrors find_errors(std::span<const HostRecord> records) {
  std::vector<StartupReport> reports;
  for (const HostRecord& record : records) {
    reports.push_back(record.report);
    const std::int64_t first = records.front().test_ranks_per_host;
    if (record.test_ranks_per_host != first && !record.report.has_problem())
      write_string(fmt::format("KOLO_TEST_RANKS_PER_HOST is {}, on rank 0 it is {}",
                               record.test_ranks_per_host, first),
                   reports.back().problem);
  }
  return collect_errors(reports);
}

std::string why_no_memory(std::span<const HostRecord> records, const Topology& topology, int rank) {
  std::string why;
  for (const int other : ranks_of_host(topology, rank)) {
    const HostRecord& record = records[static_cast<std::size_t>(other)];
    if (record.cpu_operations == CpuOperations::mpi) return "a rank of this host does without";
    if (record.inbox == 0) why = "another rank of this host cannot";
  }
  return why;
}

Verdict reach_verdict(std::span<const HostRecord> records, std::span<const SetupReport> reports,
                      const Topology& topology) {
  const std::vector<std::string> no_memory = memory_problems(reports, topology);
  std::vector<StartupReport> starts;
  std::vector<StartupReport> connections;
  for (std::size_t rank = 0; rank < reports.size(); ++rank) {
    starts.push_back(reports[rank].start);
    connections.push_back(reports[rank].connections);
    if (records[rank].cpu_operations == CpuOperations::shm && !no_memory[rank].empty())
      write_string("cpu_operations is shm, but the ranks of this host cannot share memory: " +
                       no_memory[rank],
                   starts.back().problem);
  }
  return {.errors = collect_errors(starts),
          .connection_errors = collect_errors(connections),
          .no_memory = no_memory[static_cast<std::size_t>(topology.rank)],
          .all_hosts_share =
              std::ranges::all_of(no_memory, [](const std::string& why) { return why.empty(); })};
}

}  // namespace kolo::internal::session
