// SPDX-License-Identifier: Apache-2.0
// What each rank reports to all others when a session starts, and the verdict of all.
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

/// Of the same size in every version, and the report comes first, so that a rank of another version
/// is reported instead of misread.
struct alignas(1024) HostRecord {
  static constexpr std::size_t max_addresses = 8;

  StartupReport report{};

  // Rank 0's values hold for all.
  std::uint64_t session = 0;  // no earlier session had this number
  transport::Secret secret{};
  std::int64_t peer_timeout_ns = 0;
  Network network{};

  // The same on all ranks, or the session does not start.
  std::int64_t test_ranks_per_host = 0;

  std::array<char, 64> host{};
  std::uint64_t machine = 0;  // ranks with the same one have the same loopback; 0: not known
  std::int32_t lowest_rank_of_host = 0;
  CpuOperations cpu_operations{};
  std::int32_t max_tag = 0;   // of MPI
  std::uint64_t inbox = 0;    // for the others' memory; 0: this rank has none to share
  bool wants_sockets = true;  // between hosts
  std::uint32_t address_count = 0;
  std::array<transport::SocketAddress, max_addresses> addresses{};  // where it can be called
};
static_assert(sizeof(HostRecord) == 1024 && std::is_trivially_copyable_v<HostRecord>);

/// `records` by rank, here and below: what keeps the session from starting.
[[nodiscard]] StartupErrors find_errors(std::span<const HostRecord> records);

/// Why the ranks of `rank`'s host cannot share memory, according to their records; empty if they
/// can.
[[nodiscard]] std::string why_no_memory(std::span<const HostRecord> records,
                                        const Topology& topology, int rank);

/// Which ranks share memory with their hosts, when all have tried.
struct MemoryVerdict {
  StartupErrors errors{};              // the session cannot start
  std::vector<std::string> reasons{};  // by rank: why it shares none; empty: it does

  [[nodiscard]] bool shared_by(int rank) const {
    return reasons[static_cast<std::size_t>(rank)].empty();
  }
  /// For each rank, the lowest of those that share memory with it: itself, if none do.
  [[nodiscard]] std::vector<int> sharing_node_of(const Topology& topology) const;
};

/// `reports`: by rank, the problem with its memory.
[[nodiscard]] MemoryVerdict judge_memory(std::span<const HostRecord> records,
                                         std::span<const StartupReport> reports,
                                         const Topology& topology);

/// Without MPI: what the ranks need it for. `needs_network`: some of them do not share memory.
[[nodiscard]] StartupErrors find_needs_of_mpi(std::span<const HostRecord> records,
                                              bool needs_network);

/// Where each rank listens for data.
struct DataAddresses {
  StartupReport report{};
  std::uint32_t count = 0;
  std::array<transport::SocketAddress, HostRecord::max_addresses> addresses{};
};

/// The result of a rank's setup after memory was judged. With MPI, a session can do without
/// `connections`.
struct SetupReport {
  StartupReport start{};
  StartupReport data{};         // connections that libfabric makes
  StartupReport connections{};  // for control messages
  MissingRanks without_data{};
  MissingRanks without_connection{};
};

/// What all ranks do alike when they know how each has fared.
struct Verdict {
  StartupErrors errors{};             // the session cannot start
  StartupErrors connection_errors{};  // no sockets between hosts; no errors without MPI
};

[[nodiscard]] Verdict reach_verdict(std::span<const SetupReport> reports, bool has_mpi);

}  // namespace kolo::internal::session
