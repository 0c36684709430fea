// SPDX-License-Identifier: Apache-2.0
// Executes batches among ranks of several hosts: through shared memory within a host, over the
// network between hosts.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "backend/backend.hpp"
#include "backend/internode/placement.hpp"
#include "backend/internode/reduction.hpp"
#include "backend/mpi/exchange.hpp"
#include "backend/shm/arena.hpp"
#include "backend/shm/groups.hpp"

namespace kolo::internal::backend {

/// The ranks of a host divide the traffic with other hosts among them. So the network carries a
/// host's data once, not once for each rank, and all ranks send and receive at the same time.
///
/// In an allreduce each rank reduces a slice between the hosts. All ranks get the same bits: the
/// ranks of a host are combined in their order, then the hosts in an order that depends only on
/// their number. A reducescatter gives the same bits as an allreduce for its elements.
class InterNodeBackend : public Backend {
 public:
  /// The size of a slot in the arena. Pieces of this size keep a fast link with high latency busy.
  static constexpr std::int64_t default_slot_bytes = std::int64_t{1} << 20;
  /// Over TCP, Open MPI sends messages below 64 KiB eagerly, and larger ones after a handshake.
  static constexpr std::int64_t default_message_bytes = 60 << 10;

  /// `messenger` is that of MpiBackend, which may share it, as long as no batch is executed by
  /// both. `node_of` maps each rank to the lowest rank of its host. `arena` is that of this host,
  /// where this rank has the same index as among the ranks of the host; the arenas of all hosts
  /// have the same slots. `message_bytes` is the maximum size of a message, the same on all ranks.
  InterNodeBackend(messenger::Messenger& messenger, const std::vector<int>& node_of,
                   shm::Arena& arena, std::int64_t message_bytes = default_message_bytes);

  /// Sets the algorithm for slices of allreduces in later batches; the same on all ranks. For
  /// tests. By default, `select_algorithm` chooses.
  void use(internode::InterNodeAlgorithm algorithm) { algorithm_ = algorithm; }

  /// True if this backend is faster than messages from rank to rank: if a host has several of the
  /// ranks, or if there are too many hosts for messages from each host to each. `node_of` as above.
  [[nodiscard]] static bool is_of_use(const std::vector<int>& node_of);

  /// True for batches whose ranks lie on several hosts, if the batch is an allreduce except Adasum,
  /// a reducescatter, a broadcast of tensors of more than a message, or an allgather with several
  /// ranks on one host (otherwise there is nothing to share) or among many hosts.
  [[nodiscard]] bool can_execute(const Batch& batch) const;

  /// Throws InvalidArgument for a batch that it cannot execute, like MpiBackend's.
  [[nodiscard]] std::unique_ptr<Execution> start(Batch batch) override;
  [[nodiscard]] std::uint64_t sequence_span() const override { return endpoint_.sequences; }

 private:
  mpi::Endpoint endpoint_;
  mutable internode::PlacementCache placements_;
  shm::Arena& arena_;
  std::optional<internode::InterNodeAlgorithm> algorithm_{};
  std::vector<int> ranks_of_host_{};
};

namespace internode {

// The collectives, in which each host's ranks share the work.
// `local_ranks` are the participating ranks of this host, in the order of the placement.

/// Uses `algorithm`, or else the selected one for each slice.
[[nodiscard]] std::unique_ptr<Execution> make_allreduce(
    shm::Arena& arena, mpi::Endpoint& endpoint, Batch batch, const Placement& placement,
    shm::LocalRanks local_ranks, std::optional<InterNodeAlgorithm> algorithm);
/// `counterparts` are those of the batch's ranks.
[[nodiscard]] std::unique_ptr<Execution> make_reducescatter(
    shm::Arena& arena, mpi::Endpoint& endpoint, Batch batch,
    std::shared_ptr<const Counterparts> counterparts, shm::LocalRanks local_ranks);
[[nodiscard]] std::unique_ptr<Execution> make_allgather(
    shm::Arena& arena, mpi::Endpoint& endpoint, Batch batch,
    std::shared_ptr<const Counterparts> counterparts, shm::LocalRanks local_ranks);
/// Creates a broadcast of tensors.
[[nodiscard]] std::unique_ptr<Execution> make_broadcast(shm::Arena& arena, mpi::Endpoint& endpoint,
                                                        Batch batch, const Placement& placement,
                                                        shm::LocalRanks local_ranks);

}  // namespace internode
}  // namespace kolo::internal::backend
