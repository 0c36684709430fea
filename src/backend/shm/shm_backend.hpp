// SPDX-License-Identifier: Apache-2.0
// Executes batches among the ranks of one host through memory that they share.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "backend/backend.hpp"
#include "backend/shm/arena.hpp"
#include "backend/shm/groups.hpp"

namespace kolo::internal::backend {

/// The fusion buffer is the transport: every rank packs into its own segment, and the others read
/// it there. All ranks get the same bits. System calls are only needed to wake ranks that sleep.
class ShmBackend : public Backend {
 public:
  static constexpr std::int64_t default_piece_bytes = std::int64_t{1} << 18;

  /// The default for LocalGroup::cache_share.
  static constexpr std::int64_t default_cache_share = std::int64_t{1} << 20;

  /// The size of each rank's memory.
  [[nodiscard]] static std::size_t bytes_needed(std::int64_t slot_bytes = default_piece_bytes) {
    return shm::Arena::bytes_needed(slot_bytes);
  }

  /// `ranks` are the host's ranks by index, `local_peers` their memory, and `index` is that of this
  /// rank. `piece_bytes` is the same on all ranks, a multiple of 8, at least 64 and at least 8 for
  /// each rank. Slots may be larger, for other backends that share the arena. `nodes` has a node
  /// for each rank, or none at all.
  ShmBackend(std::vector<int> ranks, std::vector<shm::LocalPeer> local_peers, int index,
             std::int64_t piece_bytes = default_piece_bytes, std::int64_t slot_bytes = 0,
             std::int64_t cache_share = default_cache_share, shm::NumaNodes nodes = {});

  /// True if all participating ranks are on this host.
  [[nodiscard]] bool can_execute(const Batch& batch) const;

  /// The backend must outlive its executions. Throws InvalidArgument for a batch that it cannot
  /// execute.
  [[nodiscard]] std::unique_ptr<Execution> start(Batch batch) override;
  /// Prepares allreduces only: deposits as many pieces as the slots hold.
  [[nodiscard]] std::unique_ptr<Execution> prepare(const Batch& batch) override;

  /// Returns when no other rank writes to this rank's tensors any more, or when WriteFence gives up
  /// waiting (`fence_patience`).
  void abandon() noexcept override { arena_.fence().close(fence_patience); }

  /// The arena, for backends that execute batches of this host's ranks together with others.
  [[nodiscard]] shm::Arena& arena() { return arena_; }

 private:
  static constexpr std::chrono::seconds fence_patience{10};

  /// The index of this rank in the batch. Throws if this rank does not take part.
  [[nodiscard]] int own_index(const Batch& batch) const;
  [[nodiscard]] shm::LocalRanks local_ranks_of(const Batch& batch) const;
  /// The index of `rank` on the host; -1 if it is on another host.
  [[nodiscard]] int host_index(int rank) const;

  std::vector<int> ranks_;
  shm::Arena arena_;
  shm::NumaNodes nodes_;
};

}  // namespace kolo::internal::backend
