// Control and data between CPUs: through shared memory where there is some, else over MPI.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backend/hierarchical/hierarchical_backend.hpp"
#include "backend/mpi/mpi_backend.hpp"
#include "backend/shm/shm_backend.hpp"
#include "node/neighbourhood.hpp"
#include "session/links.hpp"
#include "session/mpi_environment.hpp"
#include "session/settings.hpp"
#include "session/shared_board.hpp"
#include "session/single_copy.hpp"
#include "session/topology.hpp"
#include "transport/mpi_transport.hpp"
#include "transport/shm_transport.hpp"

namespace kolo::session {

/// The ranks of this host, if all of them can share memory; else null, and `why` says why not.
/// Collective.
struct Meeting {
  std::unique_ptr<node::Neighbourhood> neighbours{};
  std::string why{};
  SingleCopyChoice single_copy{};
};
[[nodiscard]] Meeting meet_neighbours(MPI_Comm world, const Topology& topology,
                                      std::uint64_t session, const Settings& settings);

/// With neighbours the ranks of a host reach each other through memory, and batches in which only
/// they take part are executed there. If all ranks are neighbours MPI is not called any more, but
/// for Adasum. If there are several hosts and all have neighbours, allreduces between them go
/// through the memory of each host and cross the network once; what else there is goes from rank to
/// rank over MPI.
class CpuLinks : public Links {
 public:
  /// Collective over `world`, which is not kept. `neighbours` may be null, on all ranks of the host
  /// alike. Nor may `single_copy_from` differ within a host.
  CpuLinks(MPI_Comm world, const Topology& topology,
           std::unique_ptr<node::Neighbourhood> neighbours, std::int64_t single_copy_from);

  [[nodiscard]] transport::Transport& transport() override { return transport_; }
  [[nodiscard]] backend::Backend& backend() override { return backend_; }
  [[nodiscard]] const node::Doorbell& bell() const override;
  [[nodiscard]] bool must_poll() const override;
  [[nodiscard]] negotiation::Board* board() override { return board_ ? &*board_ : nullptr; }
  [[nodiscard]] std::string data_path() const override;
  [[nodiscard]] std::int64_t single_copy_from() const override { return single_copy_from_; }
  [[nodiscard]] std::shared_ptr<node::SharedHeap> heap() const override;
  [[nodiscard]] std::vector<StatusBoard::Seat> seats() const override;
  [[nodiscard]] std::vector<node::FileDescriptor> other_processes() const override;
  [[nodiscard]] std::vector<int> lost_ranks() const override;

 private:
  /// Sends by shared memory to those of this host, by MPI to the others.
  class Transport : public transport::Transport {
   public:
    explicit Transport(CpuLinks& links) : links_(links) {}
    void send(int peer, transport::Message message) override;
    bool poll(const Receiver& receive) override;
    [[nodiscard]] bool flushed() const override;

   private:
    CpuLinks& links_;
  };

  class Backend : public backend::Backend {
   public:
    explicit Backend(CpuLinks& links) : links_(links) {}
    [[nodiscard]] std::unique_ptr<backend::Execution> start(backend::Batch batch) override;

   private:
    CpuLinks& links_;
  };

  class MpiExecution;

  [[nodiscard]] bool is_neighbour(int rank) const;

  Communicator control_;
  Communicator data_;
  std::unique_ptr<node::Neighbourhood> neighbours_;
  std::vector<int> ranks_of_host_{};
  std::size_t status_offset_ = 0;  // in each neighbour's memory
  bool all_are_neighbours_ = false;
  std::int64_t single_copy_from_ = 0;
  node::BellWord own_word_{};                 // without neighbours
  std::optional<node::Doorbell> own_bell_{};  // without neighbours
  std::optional<transport::ShmTransport> shm_transport_{};
  std::optional<backend::ShmBackend> shm_backend_{};
  std::optional<SharedBoard> board_{};  // if all ranks are neighbours
  transport::MpiTransport mpi_transport_{control_.get()};
  backend::MpiBackend mpi_backend_{data_.get()};
  std::optional<backend::HierarchicalBackend> hierarchical_backend_{};
  int mpi_executions_ = 0;
  Transport transport_{*this};
  Backend backend_{*this};
};

}  // namespace kolo::session
