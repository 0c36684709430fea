// SPDX-License-Identifier: Apache-2.0
// Executes batches among ranks of several hosts: through shared memory inside a host, over MPI
// between hosts.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "backend/backend.hpp"
#include "backend/internode/algorithms.hpp"
#include "backend/internode/placement.hpp"
#include "backend/mpi/exchange.hpp"
#include "backend/shm/arena.hpp"

namespace kolo::internal::backend {

/// The ranks of a host share out what goes to other hosts and comes from there. So the network
/// carries the data of a host once, not once for each rank, and all ranks send and receive at once.
///
/// In an allreduce each rank reduces a slice between the hosts. All ranks get the same bits: those
/// of each host are combined in the order of the ranks, then the hosts in an order that depends on
/// their number only. A reducescatter gives the bits of the same elements of an allreduce.
class InterNodeBackend : public Backend {
 public:
  /// The size of a slot in the arena. With pieces of this size in progress, a fast link of high
  /// latency is not idle.
  static constexpr std::int64_t default_slot_bytes = std::int64_t{1} << 20;
  /// Over TCP, Open MPI sends messages below 64 KiB at once, and larger ones after a handshake.
  static constexpr std::int64_t default_message_bytes = 60 << 10;

  /// `messenger` as for MpiBackend, which may use it too: no batch is executed by both. `node_of`
  /// has for each rank the lowest of its host. `arena` is that of this host, where this rank has
  /// the same place among the ranks of the host; all hosts have arenas with the same slots.
  /// `message_bytes`, the same on all ranks, is the most that is sent at once.
  InterNodeBackend(messenger::Messenger& messenger, const std::vector<int>& node_of,
                   shm::Arena& arena, std::int64_t message_bytes = default_message_bytes);

  /// How slices of allreduces are reduced between hosts, for the batches from now on; the same on
  /// all ranks. For tests; without it, a rule decides.
  void use(internode::InterNodeAlgorithm algorithm) { algorithm_ = algorithm; }

  /// True if this is better than messages from rank to rank: if a host has several of the ranks, or
  /// if there are so many hosts that messages from each to each are too many. `node_of` as above.
  [[nodiscard]] static bool is_of_use(const std::vector<int>& node_of);

  /// True for batches whose ranks lie on several hosts: for every allreduce but Adasum, and every
  /// reducescatter; for an allgather if a host has several of the ranks, else there is nothing to
  /// share.
  [[nodiscard]] bool can_execute(const Batch& batch) const;

  /// As MpiBackend's.
  [[nodiscard]] std::unique_ptr<Execution> start(Batch batch) override;
  [[nodiscard]] std::uint64_t sequence_span() const override { return endpoint_.sequences; }

 private:
  mpi::Endpoint endpoint_;
  mutable internode::PlacementCache placements_;
  shm::Arena& arena_;
  std::optional<internode::InterNodeAlgorithm> algorithm_{};
  std::vector<int> ranks_of_host_{};
};

}  // namespace kolo::internal::backend
