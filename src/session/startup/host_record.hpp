// SPDX-License-Identifier: Apache-2.0
// The records that the ranks exchange when a session starts, and the decisions that every rank
// derives from them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "base/settings.hpp"
#include "session/startup/startup_report.hpp"
#include "session/topology.hpp"
#include "transport/peer_connector.hpp"

namespace kolo::internal::session {

/// The first record of a rank. Its size is the same in every version and the report comes first, so
/// that a rank of another version is reported instead of misread.
struct alignas(1024) HostRecord {
  static constexpr std::size_t max_addresses = 8;

  StartupReport report{};

  // All ranks use rank 0's values of the next four members.
  std::uint64_t session = 0;  // a random number, so that no earlier session had it
  transport::Secret seed{};   // the ranks derive the session's secret from it
  std::int64_t peer_timeout_ns = 0;
  Network network{};  // all ranks or none choose encryption

  // The session starts only if this is the same on all ranks.
  std::int64_t test_ranks_per_host = 0;

  std::array<char, 64> host{};
  std::uint64_t machine = 0;  // equal numbers: the ranks share a loopback interface; 0: unknown
  std::int32_t lowest_rank_of_host = 0;
  CpuOperations cpu_operations{};
  GpuOperations gpu_operations{};
  std::int32_t max_tag = 0;   // the highest tag of this rank's MPI
  std::uint64_t inbox = 0;    // receives the other ranks' memory; 0: this rank shares none
  bool wants_sockets = true;  // allows sockets between hosts
  std::uint32_t address_count = 0;
  std::array<transport::SocketAddress, max_addresses> addresses{};  // where this rank listens
};
static_assert(sizeof(HostRecord) == 1024 && std::is_trivially_copyable_v<HostRecord>);

/// The secret with which the ranks of the session know each other. It is derived from the job's
/// secret, so that it is never sent; in a job without one, it is as secret as the records.
[[nodiscard]] inline transport::Secret secret_of_session(const transport::Secret& job,
                                                         std::span<const HostRecord> records) {
  return transport::derive_secret(job, records.front().seed, records.front().session);
}

/// The errors that keep the session from starting. Here and below, `records` is indexed by rank.
[[nodiscard]] StartupErrors find_errors(std::span<const HostRecord> records);

/// Why the ranks of `rank`'s host cannot share memory, according to their records; empty if they
/// can.
[[nodiscard]] std::string why_no_memory(std::span<const HostRecord> records,
                                        const Topology& topology, int rank);

/// The ranks that share memory with their hosts, after all ranks have tried to.
struct MemoryVerdict {
  StartupErrors errors{};              // not empty: the session cannot start
  std::vector<std::string> reasons{};  // by rank: why the rank shares no memory; empty: it does

  [[nodiscard]] bool shared_by(int rank) const {
    return reasons[static_cast<std::size_t>(rank)].empty();
  }
  /// For each rank, the lowest rank that shares memory with it, which may be the rank itself.
  [[nodiscard]] std::vector<int> sharing_node_of(const Topology& topology) const;
};

/// Decides for each host: its ranks share memory only if all of them can. `reports`: for each rank,
/// the problem with its memory.
[[nodiscard]] MemoryVerdict judge_memory(std::span<const HostRecord> records,
                                         std::span<const StartupReport> reports,
                                         const Topology& topology);

/// The errors of a session without MPI whose settings need MPI. `needs_network`: some ranks do not
/// share memory.
[[nodiscard]] StartupErrors find_needs_of_mpi(std::span<const HostRecord> records,
                                              bool needs_network);

/// The errors of a session over a network whose settings exclude encryption.
[[nodiscard]] StartupErrors find_obstacles_to_encryption(std::span<const HostRecord> records);

/// The addresses at which a rank listens for data.
struct DataAddresses {
  StartupReport report{};
  std::uint32_t count = 0;
  std::array<transport::SocketAddress, HostRecord::max_addresses> addresses{};
};

/// The results of a rank's setup after `judge_memory`. With MPI, a session can start without
/// `connections`.
struct SetupReport {
  StartupReport start{};
  StartupReport data{};         // the connections for data
  StartupReport connections{};  // the sockets for control messages
  MissingRanks without_data{};
  MissingRanks without_connection{};
};

/// The common decision of all ranks, derived from the same reports.
struct Verdict {
  StartupErrors errors{};             // not empty: the session cannot start
  StartupErrors connection_errors{};  // not empty: it starts with MPI in place of sockets
};

/// `may_lack_sockets`: MPI may carry control messages instead.
[[nodiscard]] Verdict reach_verdict(std::span<const SetupReport> reports, bool may_lack_sockets);

}  // namespace kolo::internal::session
