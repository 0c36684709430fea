// SPDX-License-Identifier: Apache-2.0
#include "backend/internode/internode_backend.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <set>
#include <utility>

#include "backend/batch.hpp"
#include "base/format.hpp"
#include "kolo/error.hpp"

namespace kolo::internal::backend {

InterNodeBackend::InterNodeBackend(messenger::Messenger& messenger, const std::vector<int>& node_of,
                                   shm::Arena& arena, std::int64_t message_bytes)
    : endpoint_(messenger, message_bytes), placements_(node_of, messenger.rank()), arena_(arena) {
  for (int rank = 0; rank < endpoint_.size; ++rank)
    if (node_of[static_cast<std::size_t>(rank)] ==
        node_of[static_cast<std::size_t>(endpoint_.rank)])
      ranks_of_host_.push_back(rank);
}

bool InterNodeBackend::is_of_use(const std::vector<int>& node_of) {
  const std::set<int> nodes(node_of.begin(), node_of.end());
  return nodes.size() < node_of.size() || std::ssize(nodes) > internode::max_owners_at_once;
}

bool InterNodeBackend::can_execute(const Batch& batch) const {
  const internode::Placement& placement = placements_.of(batch.ranks);
  if (!placement.spans_hosts()) return false;
  switch (batch.kind.type) {
    case OperationType::allreduce: return batch.kind.op != ReduceOp::adasum;
    case OperationType::reducescatter: return true;
    case OperationType::allgather:
      return placement.shares_hosts() ||
             std::ssize(placement.hosts) > internode::max_owners_at_once;
    case OperationType::broadcast: return total_bytes(batch) > endpoint_.piece_bytes;
    default: return false;
  }
}

std::unique_ptr<Execution> InterNodeBackend::start(Batch batch) {
  if (!can_execute(batch))
    throw InvalidArgument(
        fmt::format("\"{}\" cannot be executed host by host", to_string(batch.kind)));
  check(batch);
  static_cast<void>(index_of(endpoint_.rank, batch));  // throws unless this rank takes part
  const bool gathers = batch.kind.type == OperationType::allgather;
  const bool scatters = batch.kind.type == OperationType::reducescatter;
  const auto counterparts = gathers || scatters ? placements_.counterparts(batch.ranks) : nullptr;
  const internode::Placement& placement = placements_.of(batch.ranks);
  const auto own_host = static_cast<std::size_t>(placement.host_of(endpoint_.rank));
  shm::LocalRanks local_ranks;
  for (const int rank : placement.hosts[own_host]) {
    const auto found = std::ranges::find(ranks_of_host_, rank);
    local_ranks.push_back(static_cast<int>(found - ranks_of_host_.begin()));
  }
  if (gathers)
    return internode::make_allgather(arena_, endpoint_, std::move(batch), counterparts,
                                     std::move(local_ranks));
  if (scatters)
    return internode::make_reducescatter(arena_, endpoint_, std::move(batch), counterparts,
                                         std::move(local_ranks));
  if (batch.kind.type == OperationType::broadcast)
    return internode::make_broadcast(arena_, endpoint_, std::move(batch), placement,
                                     std::move(local_ranks));
  return internode::make_allreduce(arena_, endpoint_, std::move(batch), placement,
                                   std::move(local_ranks), algorithm_);
}

}  // namespace kolo::internal::backend
