// Which backend executes a batch between CPUs.
#pragma once

#include <mpi.h>

#include <memory>
#include <optional>
#include <vector>

#include "backend/hierarchical/hierarchical_backend.hpp"
#include "backend/mpi/mpi_backend.hpp"
#include "backend/shm/shm_backend.hpp"
#include "session/settings.hpp"
#include "transport/mpi_transport.hpp"

namespace kolo::session {

/// Batches in which only ranks of this host take part are executed in its memory; allreduces
/// between hosts go through the memory of each and cross the network once; what else there is goes
/// from rank to rank over MPI.
class CpuBackend : public backend::Backend {
 public:
  /// `data` carries nothing else. All outlive this.
  CpuBackend(MPI_Comm data, transport::MpiActivity& activity)
      : data_(data), activity_(activity), mpi_(data) {}

  /// Ranks of this host share memory.
  void use_memory(backend::ShmBackend& memory) { memory_ = &memory; }
  /// Ranks of every host do, the memory of this one included. `node_of`: for each rank, the lowest
  /// of its host.
  void use_memory_everywhere(const std::vector<int>& node_of);

  /// Which way they take between hosts; nothing, if memory is not used everywhere. Collective,
  /// before any batch; the same on all ranks.
  void choose_way(HostAllreduce choice);

  [[nodiscard]] std::unique_ptr<backend::Execution> start(backend::Batch batch) override;

 private:
  [[nodiscard]] backend::Backend& network_for(const backend::Batch& batch);
  class MpiExecution;

  MPI_Comm data_;
  transport::MpiActivity& activity_;
  backend::MpiBackend mpi_;
  backend::ShmBackend* memory_ = nullptr;
  std::optional<backend::HierarchicalBackend> between_hosts_{};
};

}  // namespace kolo::session
