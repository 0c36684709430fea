// SPDX-License-Identifier: Apache-2.0
#include "session/startup/host_record.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <utility>

#include "kolo/version.hpp"
#include "session/job/mpi_environment.hpp"

namespace kolo::internal::session {
namespace {

/// How the settings of a rank prevent a session with rank 0; empty if they do not.
std::string difference(const HostRecord& record, const HostRecord& first) {
  if (record.test_ranks_per_host != first.test_ranks_per_host)
    return fmt::format("KOLO_TEST_RANKS_PER_HOST is {}, on rank 0 it is {}",
                       record.test_ranks_per_host, first.test_ranks_per_host);
  const bool encrypts = record.network == Network::encrypted;
  if (encrypts != (first.network == Network::encrypted))
    return encrypts ? "network is encrypted, on rank 0 it is not"
                    : "network is not encrypted, on rank 0 it is";
  return "";
}

std::string_view without_mpi() {
  return built_with_mpi() ? "the program was started without MPI: start it with mpirun"
                          : "this build of Kolo is without MPI";
}

}  // namespace

StartupErrors find_errors(std::span<const HostRecord> records) {
  const HostRecord& first = records.front();
  std::vector<StartupReport> reports;
  for (const HostRecord& record : records) {
    reports.push_back(record.report);
    // A rank with a problem may not have read its settings.
    if (!first.report.has_problem() && !record.report.has_problem())
      write_string(difference(record, first), reports.back().problem);
  }
  return collect_errors(reports);
}

std::string why_no_memory(std::span<const HostRecord> records, const Topology& topology, int rank) {
  std::string why;
  for (const int other : ranks_of_host(topology, rank)) {
    const HostRecord& record = records[static_cast<std::size_t>(other)];
    if (record.cpu_operations == CpuOperations::mpi)
      return "a rank of this host has cpu_operations=mpi";
    if (record.inbox == 0) why = "another rank of this host cannot share memory";
  }
  return why;
}

std::vector<int> MemoryVerdict::sharing_node_of(const Topology& topology) const {
  std::vector<int> nodes = topology.node_of;
  for (int rank = 0; rank < topology.size; ++rank)
    if (!shared_by(rank)) nodes[static_cast<std::size_t>(rank)] = rank;
  return nodes;
}

MemoryVerdict judge_memory(std::span<const HostRecord> records,
                           std::span<const StartupReport> reports, const Topology& topology) {
  std::vector<bool> fails(reports.size());  // by the lowest rank of the host
  for (std::size_t rank = 0; rank < reports.size(); ++rank)
    if (reports[rank].has_problem()) fails[static_cast<std::size_t>(topology.node_of[rank])] = true;
  MemoryVerdict verdict{.reasons = std::vector<std::string>(reports.size())};
  std::vector<StartupReport> starts;
  for (std::size_t rank = 0; rank < reports.size(); ++rank) {
    std::string problem;
    if (fails[static_cast<std::size_t>(topology.node_of[rank])]) {
      std::string& reason = verdict.reasons[rank];
      reason = reports[rank].has_problem() ? read_string(reports[rank].problem)
                                           : "another rank of this host cannot share memory";
      if (records[rank].cpu_operations == CpuOperations::shm)
        problem =
            "cpu_operations is shm, but the ranks of this host cannot share memory: " + reason;
    }
    starts.push_back(StartupReport::make(version, problem));
  }
  verdict.errors = collect_errors(starts);
  return verdict;
}

StartupErrors find_needs_of_mpi(std::span<const HostRecord> records, bool needs_network) {
  std::vector<StartupReport> reports;
  for (const HostRecord& record : records) {
    std::string problem;
    if (record.cpu_operations == CpuOperations::mpi)
      problem = fmt::format("cpu_operations is mpi, but {}", without_mpi());
    else if (records.front().network == Network::mpi)
      problem = fmt::format("network is mpi on rank 0, but {}", without_mpi());
    else if (needs_network && !record.wants_sockets)
      problem = fmt::format("control_interface is none, but {}", without_mpi());
    reports.push_back(StartupReport::make(version, problem));
  }
  return collect_errors(reports);
}

StartupErrors find_obstacles_to_encryption(std::span<const HostRecord> records) {
  std::vector<StartupReport> reports;
  for (const HostRecord& record : records)
    reports.push_back(StartupReport::make(
        version,
        !record.wants_sockets
            ? "network is encrypted, but control_interface is none, so control messages would not "
              "be authenticated"
        : record.gpu_operations == GpuOperations::nccl
            ? "network is encrypted, but gpu_operations is nccl, and NCCL does not encrypt"
            : ""));
  return collect_errors(reports);
}

Verdict reach_verdict(std::span<const SetupReport> reports, bool may_lack_sockets) {
  std::vector<StartupReport> starts;
  std::vector<StartupReport> data;
  std::vector<StartupReport> connections;
  std::vector<MissingRanks> without_data;
  std::vector<MissingRanks> without_connection;
  for (const SetupReport& report : reports) {
    starts.push_back(report.start);
    data.push_back(report.data);
    connections.push_back(report.connections);
    without_data.push_back(report.without_data);
    without_connection.push_back(report.without_connection);
  }
  Verdict verdict{.errors = collect_errors(starts),
                  .connection_errors = collect_errors(connections, without_connection)};
  // The reports on data come before those on connections: each rank needs a data connection to
  // every other one, so these reports identify a missing rank best.
  if (verdict.errors.text.empty()) verdict.errors = collect_errors(data, without_data);
  if (may_lack_sockets) return verdict;
  StartupErrors fatal = std::exchange(verdict.connection_errors, {});
  if (verdict.errors.text.empty()) verdict.errors = std::move(fatal);
  return verdict;
}

}  // namespace kolo::internal::session
