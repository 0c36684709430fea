#include "session/cpu_links.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "kolo/error.hpp"
#include "node/mpi_error.hpp"

namespace kolo::session {
namespace {

using node::check_mpi;

// The neighbours' memory: the rings of the transport, what the backend needs, the board's word,
// the status.
std::size_t backend_offset(int ranks_of_host) {
  constexpr std::size_t page = 4096;
  return (transport::ShmTransport::bytes_needed(ranks_of_host) + page - 1) / page * page;
}

/// More than that cannot be used: the heaps take memory only for what is in them.
std::size_t memory_of_host() {
  return static_cast<std::size_t>(::sysconf(_SC_PHYS_PAGES)) *
         static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

/// Batches between hosts take larger pieces.
std::int64_t slot_bytes(const Topology& topology) {
  return topology.local_size == topology.size ? backend::ShmBackend::default_piece_bytes
                                              : backend::HierarchicalBackend::default_slot_bytes;
}

/// Collective.
bool on_all_ranks(MPI_Comm comm, bool mine) {
  int all = mine ? 1 : 0;
  check_mpi(MPI_Allreduce(MPI_IN_PLACE, &all, 1, MPI_INT, MPI_MIN, comm), "MPI_Allreduce");
  return all != 0;
}

std::size_t board_offset(const Topology& topology) {
  return (backend_offset(topology.local_size) +
          backend::ShmBackend::bytes_needed(slot_bytes(topology)) + 63) /
         64 * 64;
}

std::size_t status_offset(const Topology& topology) {
  return board_offset(topology) + sizeof(SharedBoard::Word);
}

std::vector<int> find_ranks_of_host(const Topology& topology) {
  std::vector<int> ranks;
  const int own = topology.node_of[static_cast<std::size_t>(topology.rank)];
  for (int rank = 0; rank < topology.size; ++rank)
    if (topology.node_of[static_cast<std::size_t>(rank)] == own) ranks.push_back(rank);
  return ranks;
}

}  // namespace

Meeting meet_neighbours(MPI_Comm world, const Topology& topology, std::uint64_t session,
                        const Settings& settings) {
  const int node = topology.node_of[static_cast<std::size_t>(topology.rank)];
  MPI_Comm split = MPI_COMM_NULL;
  check_mpi(MPI_Comm_split(world, node, topology.rank, &split), "MPI_Comm_split");
  const Communicator host(split);
  if (!on_all_ranks(host.get(), settings.cpu_operations != CpuOperations::mpi))
    return {nullptr, "a rank of this host does without"};
  Meeting meeting;
  try {
    const std::size_t bytes = status_offset(topology) + sizeof(node::StatusPage);
    meeting.neighbours = std::make_unique<node::Neighbourhood>(
        node::Party{fmt::format("{:016x}-{}", session, node), topology.local_rank,
                    topology.local_size},
        bytes, memory_of_host(), [&] { check_mpi(MPI_Barrier(host.get()), "MPI_Barrier"); });
  } catch (const std::exception& error) {
    meeting.why = error.what();
  }
  if (!on_all_ranks(host.get(), meeting.neighbours != nullptr)) {
    meeting.neighbours.reset();
    if (meeting.why.empty()) meeting.why = "another rank of this host cannot";
    return meeting;
  }
  meeting.single_copy = choose_single_copy(host.get(), *meeting.neighbours, settings.single_copy);
  return meeting;
}

/// Counts itself while it lives.
class CpuLinks::MpiExecution : public backend::Execution {
 public:
  MpiExecution(std::unique_ptr<backend::Execution> execution, int& count)
      : execution_(std::move(execution)), count_(count) {
    ++count_;
  }
  ~MpiExecution() override { --count_; }
  MpiExecution(const MpiExecution&) = delete;
  MpiExecution& operator=(const MpiExecution&) = delete;

  [[nodiscard]] backend::Progress step() override { return execution_->step(); }
  [[nodiscard]] backend::Awaited waits_for() const override { return execution_->waits_for(); }

 private:
  std::unique_ptr<backend::Execution> execution_;
  int& count_;
};

CpuLinks::CpuLinks(MPI_Comm world, const Topology& topology,
                   std::unique_ptr<node::Neighbourhood> neighbours, std::int64_t single_copy_from)
    : control_(Communicator::duplicate(world)),
      data_(Communicator::duplicate(world)),
      neighbours_(std::move(neighbours)) {
  const bool everywhere = on_all_ranks(world, neighbours_ != nullptr);
  if (neighbours_ == nullptr) {
    own_bell_.emplace(own_word_, node::Doorbell::open());
    return;
  }
  ranks_of_host_ = find_ranks_of_host(topology);
  if (single_copy_from != backend::ShmBackend::never_single_copy)
    single_copy_from_ = single_copy_from;
  status_offset_ = status_offset(topology);
  all_are_neighbours_ = topology.local_size == topology.size;
  const auto parts_at = [&](std::size_t offset) {
    std::vector<node::Neighbour> parts;
    for (int index = 0; index < neighbours_->size(); ++index)
      parts.push_back({neighbours_->memory(index) + offset, &neighbours_->bell(index),
                       neighbours_->heap(index), neighbours_->process(index)});
    return parts;
  };
  shm_transport_.emplace(parts_at(0), neighbours_->index(), ranks_of_host_);
  shm_backend_.emplace(ranks_of_host_, parts_at(backend_offset(neighbours_->size())),
                       neighbours_->index(), backend::ShmBackend::default_piece_bytes,
                       slot_bytes(topology), single_copy_from);
  if (everywhere && !all_are_neighbours_)
    hierarchical_backend_.emplace(data_.get(), topology.node_of, shm_backend_->arena());
  if (!all_are_neighbours_) return;
  std::vector<SharedBoard::Place> places;
  for (int index = 0; index < neighbours_->size(); ++index)
    places.push_back(
        {reinterpret_cast<SharedBoard::Word*>(neighbours_->memory(index) + board_offset(topology)),
         &neighbours_->bell(index)});
  board_.emplace(std::move(places), neighbours_->index());
}

const node::Doorbell& CpuLinks::bell() const {
  return neighbours_ == nullptr ? *own_bell_ : neighbours_->own_bell();
}

std::shared_ptr<node::SharedHeap> CpuLinks::heap() const {
  return neighbours_ == nullptr ? nullptr : neighbours_->own_heap();
}

bool CpuLinks::must_poll() const { return !all_are_neighbours_ || mpi_executions_ > 0; }

std::string CpuLinks::data_path() const {
  if (neighbours_ == nullptr) return "mpi";
  return all_are_neighbours_ ? "shm" : "shm+mpi";
}

std::vector<StatusBoard::Seat> CpuLinks::seats() const {
  std::vector<StatusBoard::Seat> seats;
  if (neighbours_ == nullptr) return seats;
  for (int index = 0; index < neighbours_->size(); ++index)
    seats.push_back(
        {ranks_of_host_[static_cast<std::size_t>(index)], neighbours_->process(index),
         reinterpret_cast<node::StatusPage*>(neighbours_->memory(index) + status_offset_),
         &neighbours_->bell(index)});
  return seats;
}

std::vector<node::FileDescriptor> CpuLinks::other_processes() const {
  return neighbours_ == nullptr ? std::vector<node::FileDescriptor>{} : neighbours_->others();
}

std::vector<int> CpuLinks::lost_ranks() const {
  std::vector<int> lost;
  if (neighbours_ == nullptr) return lost;
  for (const int index : neighbours_->ended())
    lost.push_back(ranks_of_host_[static_cast<std::size_t>(index)]);
  return lost;
}

bool CpuLinks::is_neighbour(int rank) const {
  return std::ranges::binary_search(ranks_of_host_, rank);
}

void CpuLinks::Transport::send(int peer, transport::Message message) {
  if (links_.is_neighbour(peer)) {
    links_.shm_transport_->send(peer, std::move(message));
  } else {
    links_.mpi_transport_.send(peer, std::move(message));
  }
}

bool CpuLinks::Transport::poll(const Receiver& receive) {
  bool moved = links_.shm_transport_ && links_.shm_transport_->poll(receive);
  if (!links_.all_are_neighbours_) moved |= links_.mpi_transport_.poll(receive);
  return moved;
}

bool CpuLinks::Transport::flushed() const {
  return links_.mpi_transport_.flushed() &&
         (!links_.shm_transport_ || links_.shm_transport_->flushed());
}

std::unique_ptr<backend::Execution> CpuLinks::Backend::start(backend::Batch batch) {
  if (links_.shm_backend_ && links_.shm_backend_->can_execute(batch))
    return links_.shm_backend_->start(std::move(batch));
  auto& between_hosts = links_.hierarchical_backend_;
  auto execution = between_hosts && between_hosts->can_execute(batch)
                       ? between_hosts->start(std::move(batch))
                       : links_.mpi_backend_.start(std::move(batch));
  return std::make_unique<MpiExecution>(std::move(execution), links_.mpi_executions_);
}

}  // namespace kolo::session
