#include "backend/hierarchical/hierarchical_backend.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <utility>

#include "backend/batch.hpp"
#include "backend/hierarchical/allreduce.hpp"
#include "backend/hierarchical/trial.hpp"
#include "base/format.hpp"
#include "kolo/error.hpp"
#include "node/error_codes.hpp"

namespace kolo::backend {

HierarchicalBackend::HierarchicalBackend(MPI_Comm comm, std::vector<int> node_of, shm::Arena& arena,
                                         std::int64_t message_bytes)
    : node_of_(std::move(node_of)), arena_(arena) {
  context_.comm = comm;
  node::check_mpi(MPI_Comm_rank(comm, &context_.rank), "MPI_Comm_rank");
  node::check_mpi(MPI_Comm_size(comm, &context_.size), "MPI_Comm_size");
  context_.piece_bytes = message_bytes - message_bytes % 8;  // whole elements of every type
  for (int rank = 0; rank < context_.size; ++rank)
    if (node_of_[static_cast<std::size_t>(rank)] ==
        node_of_[static_cast<std::size_t>(context_.rank)])
      ranks_of_host_.push_back(rank);
}

void HierarchicalBackend::try_ways() {
  std::vector<int> ranks(static_cast<std::size_t>(context_.size));
  std::iota(ranks.begin(), ranks.end(), 0);
  ways_ = hierarchical::try_ways(context_, hierarchical::Placement::of(ranks, node_of_));
}

bool HierarchicalBackend::can_execute(const Batch& batch) const {
  return batch.kind.type == OperationType::allreduce && batch.kind.op != ReduceOp::adasum &&
         hierarchical::Placement::of(batch.ranks, node_of_).has_levels();
}

std::unique_ptr<Execution> HierarchicalBackend::start(Batch batch) {
  if (!can_execute(batch))
    throw InvalidArgument(
        fmt::format("\"{}\" cannot be executed host by host", to_string(batch.kind)));
  check(batch);
  static_cast<void>(index_of(context_.rank, batch));  // it must be one of them
  const auto placement = hierarchical::Placement::of(batch.ranks, node_of_);
  const auto own_host = static_cast<std::size_t>(placement.host_of(context_.rank));
  int index = 0;
  shm::Hosts hosts;
  for (const int rank : placement.hosts[own_host]) {
    if (rank < context_.rank) ++index;
    const auto found = std::ranges::find(ranks_of_host_, rank);
    hosts.push_back(static_cast<int>(found - ranks_of_host_.begin()));
  }
  return hierarchical::make_allreduce(arena_, context_, std::move(batch), placement, ways_, index,
                                      std::move(hosts));
}

}  // namespace kolo::backend
