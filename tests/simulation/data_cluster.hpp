// SPDX-License-Identifier: Apache-2.0
// The real backends of all ranks of many hosts, in one process over a simulated network.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <vector>

#include "backend/backend.hpp"
#include "backend/internode/internode_backend.hpp"
#include "backend/mpi/mpi_backend.hpp"
#include "backend/shm/arena.hpp"
#include "network.hpp"
#include "node/doorbell.hpp"

namespace kolo::internal::simulation {

/// The cost of a batch.
struct DataCost {
  Time time{};        // until all ranks were done and nothing was in progress
  NicTraffic most{};  // the maximum of each count over all NICs
};

/// Uses plain memory as the memory of a host. Work inside a host takes no time.
class DataCluster {
 public:
  /// `host_sizes`: the number of ranks per host. `slot_bytes`: see the arena of InterNodeBackend.
  DataCluster(const std::vector<int>& host_sizes, const NetworkModel& model,
              std::int64_t slot_bytes = backend::InterNodeBackend::default_slot_bytes);

  [[nodiscard]] int size() const { return network_.size(); }
  [[nodiscard]] backend::InterNodeBackend& inter_node(int rank) const {
    return *ranks_[static_cast<std::size_t>(rank)].inter_node;
  }
  [[nodiscard]] const backend::shm::Arena& arena(int rank) const {
    return *ranks_[static_cast<std::size_t>(rank)].arena;
  }
  /// The backend from rank to rank, without regard to hosts.
  [[nodiscard]] backend::MpiBackend& flat(int rank) const {
    return *ranks_[static_cast<std::size_t>(rank)].flat;
  }
  /// Selects the algorithm between hosts.
  void use(backend::internode::InterNodeAlgorithm algorithm);

  /// A batch of this kind among all ranks, without tensors.
  [[nodiscard]] backend::Batch batch_of(const Descriptor& kind);

  /// Runs an execution on each rank, all starting at the same time. Throws std::logic_error if they
  /// do not end.
  DataCost run(const std::function<std::unique_ptr<backend::Execution>(int)>& start);

 private:
  struct Free {
    void operator()(void* memory) const { std::free(memory); }
  };
  struct Rank {
    std::unique_ptr<void, Free> memory{};  // zeros; the system provides only pages that are written
    std::unique_ptr<backend::shm::Arena> arena{};
    std::unique_ptr<backend::InterNodeBackend> inter_node{};
    std::unique_ptr<backend::MpiBackend> flat{};
  };

  void make_host(int first, int size, std::int64_t slot_bytes);

  SimulatedNetwork network_;
  // One bell serves all ranks, because none waits for it.
  node::BellWord word_{};
  node::Doorbell bell_;
  std::vector<int> node_of_{};
  std::vector<Rank> ranks_{};
  std::uint64_t sequence_ = 0;
};

}  // namespace kolo::internal::simulation
