// SPDX-License-Identifier: Apache-2.0
#include "world.hpp"

#include <algorithm>
#include <limits>
#include <stdexcept>

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

/// Reduces in pieces, because MPI counts are int.
void reduce(std::span<double> values, MPI_Op op, MPI_Comm comm) {
  constexpr std::size_t max_count = std::size_t{1} << 20U;
  while (!values.empty()) {
    const std::span<double> piece = values.first(std::min(max_count, values.size()));
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

MPI_Datatype reduced_type(kolo::DType dtype) {
  using enum kolo::DType;
  switch (dtype) {
    case u8: return MPI_UINT8_T;
    case i8: return MPI_INT8_T;
    case u16: return MPI_UINT16_T;
    case i16: return MPI_INT16_T;
    case u32: return MPI_UINT32_T;
    case i32: return MPI_INT32_T;
    case u64: return MPI_UINT64_T;
    case i64: return MPI_INT64_T;
    case f32: return MPI_FLOAT;
    case f64: return MPI_DOUBLE;
    case boolean: return MPI_C_BOOL;
    case f16:
    case bf16: return MPI_DATATYPE_NULL;
  }
  throw std::logic_error("a dtype without an MPI type");
}

MPI_Datatype moved_type(kolo::DType dtype) {
  auto* const type = reduced_type(dtype);
  return type == MPI_DATATYPE_NULL ? MPI_UINT16_T : type;
}

MPI_Op mpi_op(kolo::DType dtype, kolo::ReduceOp op) {
  const bool logical = dtype == kolo::DType::boolean;
  switch (op) {
    case kolo::ReduceOp::min: return logical ? MPI_LAND : MPI_MIN;
    case kolo::ReduceOp::max: return logical ? MPI_LOR : MPI_MAX;
    case kolo::ReduceOp::product: return logical ? MPI_LAND : MPI_PROD;
    default: return MPI_SUM;
  }
}

kolo::ReduceOp peer_op(kolo::ReduceOp op) {
  return op == kolo::ReduceOp::average ? kolo::ReduceOp::sum : op;
}

bool fits_mpi_count(std::int64_t elements) { return elements <= std::numeric_limits<int>::max(); }

}  // namespace perf
