#include "world.hpp"

#include <algorithm>

namespace perf {
namespace {

int count_nodes(MPI_Comm comm) {
  MPI_Comm node = MPI_COMM_NULL;
  MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
  int rank_on_node = 0;
  MPI_Comm_rank(node, &rank_on_node);
  MPI_Comm_free(&node);
  const int first = rank_on_node == 0 ? 1 : 0;
  int nodes = 0;
  MPI_Allreduce(&first, &nodes, 1, MPI_INT, MPI_SUM, comm);
  return nodes;
}

/// In pieces, since MPI counts in int.
void reduce(std::span<double> values, MPI_Op op, MPI_Comm comm) {
  constexpr std::size_t most = std::size_t{1} << 20U;
  while (!values.empty()) {
    const std::span<double> piece = values.first(std::min(most, values.size()));
    MPI_Allreduce(MPI_IN_PLACE, piece.data(), static_cast<int>(piece.size()), MPI_DOUBLE, op, comm);
    values = values.subspan(piece.size());
  }
}

}  // namespace

World::World() {
  MPI_Comm_dup(MPI_COMM_WORLD, &comm_);
  MPI_Comm_rank(comm_, &rank_);
  MPI_Comm_size(comm_, &size_);
  nodes_ = count_nodes(comm_);
}

World::~World() { MPI_Comm_free(&comm_); }

void World::barrier() const { MPI_Barrier(comm_); }

void World::take_maximum(std::span<double> values) const { reduce(values, MPI_MAX, comm_); }

void World::take_minimum(std::span<double> values) const { reduce(values, MPI_MIN, comm_); }

std::int64_t World::sum(std::int64_t value) const {
  MPI_Allreduce(MPI_IN_PLACE, &value, 1, MPI_INT64_T, MPI_SUM, comm_);
  return value;
}

int World::maximum(int value) const {
  MPI_Allreduce(MPI_IN_PLACE, &value, 1, MPI_INT, MPI_MAX, comm_);
  return value;
}

}  // namespace perf
