// SPDX-License-Identifier: Apache-2.0
// MPI calls of kolo-perf itself, separate from those of Kolo.
#pragma once

#include <mpi.h>

#include <cstdint>
#include <kolo/collectives.hpp>
#include <kolo/tensor.hpp>
#include <span>

namespace perf {

/// The ranks of the run, on a communicator of its own: kolo-perf's messages never match Kolo's.
class World {
 public:
  /// Collective. MPI must be initialized and must outlive this object.
  World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;
  ~World();

  [[nodiscard]] MPI_Comm comm() const { return comm_; }
  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int size() const { return size_; }
  [[nodiscard]] int nodes() const { return nodes_; }

  // All of these are collective.
  void barrier() const;
  /// Element-wise; every rank gets the result.
  void take_maximum(std::span<double> values) const;
  void take_minimum(std::span<double> values) const;
  [[nodiscard]] std::int64_t sum(std::int64_t value) const;
  [[nodiscard]] int maximum(int value) const;

 private:
  MPI_Comm comm_ = MPI_COMM_NULL;
  int rank_ = 0;
  int size_ = 1;
  int nodes_ = 1;
};

/// The type for reductions. MPI_DATATYPE_NULL for f16 and bf16, which MPI lacks.
[[nodiscard]] MPI_Datatype reduced_type(kolo::DType dtype);

/// The type for moving data: any type of the same size will do.
[[nodiscard]] MPI_Datatype moved_type(kolo::DType dtype);

/// The operator for `op`. MPI has no average: it is compared by its sum, without the division.
[[nodiscard]] MPI_Op mpi_op(kolo::DType dtype, kolo::ReduceOp op);

/// The operator that MPI runs in place of `op`.
[[nodiscard]] kolo::ReduceOp peer_op(kolo::ReduceOp op);

/// False if the number exceeds MPI's int counts.
[[nodiscard]] bool fits_mpi_count(std::int64_t elements);

}  // namespace perf
