// SPDX-License-Identifier: Apache-2.0
// Executes batches among ranks of one host through memory that they share.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "backend/backend.hpp"
#include "backend/shm/arena.hpp"
#include "backend/shm/groups.hpp"

namespace kolo::internal::backend {

/// The fusion buffer is the transport: every rank packs into its own segment, and the others read
/// it there. All ranks get the same bits. The only system calls wake ranks that sleep.
class ShmBackend : public Backend {
 public:
  static constexpr std::int64_t default_piece_bytes = std::int64_t{1} << 18;

  /// As LocalGroup::cache_share.
  static constexpr std::int64_t default_cache_share = std::int64_t{1} << 20;

  /// The size of each rank's memory.
  [[nodiscard]] static std::size_t bytes_needed(std::int64_t slot_bytes = default_piece_bytes) {
    return shm::Arena::bytes_needed(slot_bytes);
  }

  /// `ranks` are the host's ranks by index, `local_peers` their memory, and `index` is this rank's.
  /// `piece_bytes`, the same on all ranks, is at least 64 and a multiple of 8, and at least 8 for
  /// each rank. Slots may be larger, for other backends that share the arena. `nodes` has a node
  /// for each rank, or none at all.
  ShmBackend(std::vector<int> ranks, std::vector<shm::LocalPeer> local_peers, int index,
             std::int64_t piece_bytes = default_piece_bytes, std::int64_t slot_bytes = 0,
             std::int64_t cache_share = default_cache_share, shm::NumaNodes nodes = {});

  /// True if all that take part are of this host.
  [[nodiscard]] bool can_execute(const Batch& batch) const;

  /// Executions must end before the backend. Throws InvalidArgument for a batch that it cannot
  /// execute.
  [[nodiscard]] std::unique_ptr<Execution> start(Batch batch) override;
  /// Allreduces deposit what their slots hold.
  [[nodiscard]] std::unique_ptr<Execution> prepare(const Batch& batch) override;

  /// Returns when no other rank writes into this rank's tensors. See WriteFence.
  void abandon() noexcept override { arena_.fence().close(fence_patience); }

  /// For batches that these ranks execute together with others.
  [[nodiscard]] shm::Arena& arena() { return arena_; }

 private:
  static constexpr std::chrono::seconds fence_patience{10};

  /// Throws if this rank takes no part.
  [[nodiscard]] int own_index(const Batch& batch) const;
  [[nodiscard]] shm::LocalRanks local_ranks_of(const Batch& batch) const;
  /// On the host; -1 if it is not of this host.
  [[nodiscard]] int host_index(int rank) const;

  std::vector<int> ranks_;
  shm::Arena arena_;
  shm::NumaNodes nodes_;
};

}  // namespace kolo::internal::backend
