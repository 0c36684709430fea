// MPI, as kolo-perf itself uses it.
#pragma once

#include <mpi.h>

#include <cstdint>
#include <span>

namespace perf {

/// The ranks of the run. Its communicator is not the one that Kolo has.
class World {
 public:
  /// Collective. MPI is initialised and outlives this.
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
  /// Element by element, on every rank.
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

}  // namespace perf
