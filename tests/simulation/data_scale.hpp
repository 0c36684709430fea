// SPDX-License-Identifier: Apache-2.0
// The cost of collectives between many hosts, over a simulated network.
#pragma once

#include <cstdint>
#include <optional>

#include "backend/internode/reduction.hpp"
#include "data_cluster.hpp"

namespace kolo::internal::simulation {

/// Hosts with the same number of ranks each; each rank has a tensor of f32.
struct DataCase {
  int hosts = 2;
  int ranks_per_host = 8;
  std::int64_t bytes = 4;  // size of each rank's tensor
  /// The algorithm; if not set, a session's choice.
  std::optional<backend::internode::InterNodeAlgorithm> algorithm{};
  /// Simulates one rank per host, which stands for all: ranks of a host have equal slices and move
  /// in lockstep. So thousands of ranks fit into memory.
  bool leaders_only = true;
  bool flat = false;  // from rank to rank, with one rank per host
};

/// Verifies every element on every simulated rank. Throws std::logic_error if one is wrong.
[[nodiscard]] DataCost cost_of_allreduce(const DataCase& one, NetworkModel model);

/// The same for a reducescatter of tensors of this size, with the algorithm of a session. Each
/// rank gets about equally many elements.
[[nodiscard]] DataCost cost_of_reducescatter(const DataCase& one, const NetworkModel& model);

/// The same for an allgather whose result has this size on each rank.
[[nodiscard]] DataCost cost_of_allgather(const DataCase& one, const NetworkModel& model);

/// The same for a broadcast from a rank in the middle.
[[nodiscard]] DataCost cost_of_broadcast(const DataCase& one, const NetworkModel& model);

/// The minimum number of bytes that each NIC must send in an allreduce; half of it in a
/// reducescatter.
[[nodiscard]] double least_bytes(const DataCase& one);
/// The time in which these bytes pass a NIC.
[[nodiscard]] Time least_time(const DataCase& one, const NetworkModel& model);
[[nodiscard]] Time time_of(double bytes, const NetworkModel& model);

}  // namespace kolo::internal::simulation
