// SPDX-License-Identifier: Apache-2.0
#include "backend/shm/shm_backend.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "backend/batch.hpp"
#include "backend/shm/pipeline.hpp"
#include "base/format.hpp"
#include "kolo/error.hpp"

namespace kolo::internal::backend {

ShmBackend::ShmBackend(std::vector<int> ranks, std::vector<shm::LocalPeer> local_peers, int index,
                       std::int64_t piece_bytes, std::int64_t slot_bytes, std::int64_t cache_share,
                       shm::NumaNodes nodes)
    : ranks_(std::move(ranks)),
      arena_(std::move(local_peers), index, piece_bytes, std::max(piece_bytes, slot_bytes),
             cache_share),
      nodes_(std::move(nodes)) {
  const auto min = std::max<std::int64_t>(64, 8 * static_cast<std::int64_t>(ranks_.size()));
  if (piece_bytes < min || piece_bytes % 8 != 0)
    throw InvalidArgument(fmt::format(
        "piece_bytes is {}; it must be a multiple of 8 and at least {}", piece_bytes, min));
}

int ShmBackend::host_index(int rank) const {
  const auto found = std::ranges::find(ranks_, rank);
  return found == ranks_.end() ? -1 : static_cast<int>(found - ranks_.begin());
}

bool ShmBackend::can_execute(const Batch& batch) const {
  return std::ranges::all_of(batch.ranks, [&](int rank) { return host_index(rank) >= 0; });
}

int ShmBackend::own_index(const Batch& batch) const {
  return index_of(ranks_[static_cast<std::size_t>(arena_.index())], batch);
}

shm::LocalRanks ShmBackend::local_ranks_of(const Batch& batch) const {
  shm::LocalRanks local_ranks;
  local_ranks.reserve(batch.ranks.size());
  for (const int rank : batch.ranks) local_ranks.push_back(host_index(rank));
  return local_ranks;
}

std::unique_ptr<Execution> ShmBackend::prepare(const Batch& batch) {
  if (batch.kind.type != OperationType::allreduce || is_adasum(batch) || !can_execute(batch) ||
      !arena_.is_idle(shm::lane_of(batch)))
    return nullptr;
  check(batch);
  const shm::LocalRanks local_ranks = local_ranks_of(batch);
  // A hierarchical allreduce, within and between NUMA nodes, cannot be prepared.
  if (shm::Groups::of(local_ranks, own_index(batch), nodes_)) return nullptr;
  return shm::prepare_allreduce(arena_, batch, local_ranks);
}

std::unique_ptr<Execution> ShmBackend::start(Batch batch) {
  if (!can_execute(batch))
    throw InvalidArgument(
        fmt::format("\"{}\" cannot be executed in shared memory", to_string(batch.kind)));
  check(batch);
  const int own = own_index(batch);
  shm::LocalRanks local_ranks = local_ranks_of(batch);
  switch (batch.kind.type) {
    case OperationType::barrier:  // runs as an allreduce without tensors
    case OperationType::allreduce:
      if (is_adasum(batch))
        return shm::make_adasum(arena_, std::move(batch), std::move(local_ranks));
      if (const auto groups = shm::Groups::of(local_ranks, own, nodes_))
        return shm::make_levelled_allreduce(arena_, std::move(batch), local_ranks, *groups);
      return shm::make_allreduce(arena_, std::move(batch), local_ranks);
    case OperationType::reducescatter: {
      auto groups = shm::Groups::of(local_ranks, own, nodes_);
      return shm::make_reducescatter(arena_, std::move(batch), std::move(local_ranks),
                                     std::move(groups));
    }
    case OperationType::allgather:
    case OperationType::alltoall:
      return shm::make_gather(arena_, std::move(batch), std::move(local_ranks));
    case OperationType::broadcast:
    case OperationType::broadcast_string:
      return shm::make_broadcast(arena_, std::move(batch), std::move(local_ranks));
    case OperationType::join:
    case OperationType::add_process_set:
    case OperationType::remove_process_set: break;
  }
  throw InvalidArgument(fmt::format("\"{}\" is no batch", to_string(batch.kind)));
}

}  // namespace kolo::internal::backend
