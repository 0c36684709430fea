// SPDX-License-Identifier: Apache-2.0
#include "session/startup/cpu_links.hpp"

#include <sys/epoll.h>

#include <chrono>
#include <utility>

#include "backend/internode/internode_backend.hpp"
#include "node/error_codes.hpp"
#include "node/processors.hpp"
#include "node/status_page.hpp"

namespace kolo::internal::session {
namespace {

// The longest wait for the goodbyes of other hosts. All ranks end their sessions at about the same
// time, so the goodbyes usually come at once.
constexpr std::chrono::seconds patience_to_close{1};
constexpr std::chrono::milliseconds patience_after_failure{100};

constexpr std::size_t page = 4096;
constexpr std::size_t line = 64;

std::size_t rounded_up(std::size_t bytes, std::size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

/// The messenger for data: the given one, or, if there is none, MPI's. With sockets, MPI is
/// called for a limited time after each batch. Without them, MPI is polled for control messages
/// anyway, so there is no limit (0).
std::unique_ptr<messenger::Messenger> choose_messenger(std::unique_ptr<messenger::Messenger> data,
                                                       const OverMpi* mpi,
                                                       const transport::SocketTransport* sockets) {
  if (data != nullptr || mpi == nullptr) return data;
  return mpi->carry_data(sockets == nullptr ? std::chrono::nanoseconds(0)
                                            : sockets->peer_timeout());
}

}  // namespace

HostMemory lay_out_memory(bool several_hosts) {
  HostMemory memory{};
  // Batches between hosts use larger pieces.
  memory.slot_bytes = several_hosts ? backend::InterNodeBackend::default_slot_bytes
                                    : backend::ShmBackend::default_piece_bytes;
  memory.backend = rounded_up(transport::ShmTransport::bytes_needed(), page);
  memory.board =
      rounded_up(memory.backend + backend::ShmBackend::bytes_needed(memory.slot_bytes), line);
  memory.status = memory.board + sizeof(SharedPlanBoard::Word);
  memory.bytes = memory.status + sizeof(node::StatusPage);
  return memory;
}

CpuLinks::CpuLinks(std::unique_ptr<OverMpi> mpi, std::unique_ptr<messenger::Messenger> data,
                   const Topology& topology, std::unique_ptr<node::LocalGroup> local_peers,
                   std::unique_ptr<transport::SocketTransport> sockets,
                   const std::vector<int>& sharing_node_of)
    : mpi_(std::move(mpi)),
      local_peers_(std::move(local_peers)),
      sockets_(std::move(sockets)),
      has_data_connections_(data != nullptr),
      messenger_(choose_messenger(std::move(data), mpi_.get(), sockets_.get())),
      all_are_local_peers_(local_peers_ != nullptr && topology.local_size == topology.size),
      ranks_of_host_(ranks_of_host(topology, topology.rank)),
      has_processor_to_poll_(has_data_connections_ &&
                             node::own_processors().size() > ranks_of_host_.size()),
      transport_(mpi_ != nullptr ? &mpi_->control() : nullptr, sockets_.get(), messenger_.get()),
      backend_(messenger_.get()) {
  const bool by_host = backend::InterNodeBackend::is_of_use(sharing_node_of);
  if (local_peers_ != nullptr) {
    share_memory();
  } else {
    own_bell_.emplace(own_word_, node::Doorbell::open());
    if (by_host) use_private_memory(topology.rank);
  }
  watch_network();
  if (!all_are_local_peers_ && by_host) backend_.use_hosts(sharing_node_of);
}

/// Lets the network wake this rank. The bell watches a single descriptor, so several are combined
/// in an epoll descriptor.
void CpuLinks::watch_network() {
  if (messenger_ != nullptr) of_messenger_ = messenger_->descriptors();
  std::vector<int> watched = of_messenger_;
  if (sockets_ != nullptr) watched.push_back(sockets_->descriptor());
  if (watched.empty()) return;
  int descriptor = watched.front();
  if (watched.size() > 1) {
    network_ = node::FileDescriptor(::epoll_create1(EPOLL_CLOEXEC));
    if (!network_.valid()) node::throw_system_error("epoll_create1");
    for (const int one : watched) {
      epoll_event readable{};
      readable.events = EPOLLIN;
      if (::epoll_ctl(network_.get(), EPOLL_CTL_ADD, one, &readable) != 0)
        node::throw_system_error("epoll_ctl");
    }
    descriptor = network_.get();
  }
  if (local_peers_ != nullptr)
    local_peers_->watch(descriptor);
  else
    own_bell_->watch(descriptor);
}

CpuLinks::~CpuLinks() {
  if (messenger_ != nullptr)
    messenger_->close(abandoned_ ? std::chrono::nanoseconds(0) : patience_to_close);
  if (sockets_ != nullptr) sockets_->close(abandoned_ ? patience_after_failure : patience_to_close);
}

// Gives a rank that shares no memory a shared-memory backend of its own. In allreduces with hosts
// that share memory, it then takes part as a host of one rank.
void CpuLinks::use_private_memory(int rank) {
  const HostMemory memory = lay_out_memory(true);
  own_memory_.resize(backend::ShmBackend::bytes_needed(memory.slot_bytes) / sizeof(CacheLine) + 1);
  shm_backend_.emplace(std::vector<int>{rank},
                       std::vector<node::LocalPeer>{
                           {reinterpret_cast<std::byte*>(own_memory_.data()), &*own_bell_, {}}},
                       0, backend::ShmBackend::default_piece_bytes, memory.slot_bytes);
  backend_.use_memory(*shm_backend_);
}

void CpuLinks::share_memory() {
  const HostMemory memory = lay_out_memory(!all_are_local_peers_);
  status_offset_ = memory.status;
  const auto parts_at = [&](std::size_t offset) {
    std::vector<node::LocalPeer> parts;
    parts.reserve(static_cast<std::size_t>(local_peers_->size()));
    for (int index = 0; index < local_peers_->size(); ++index)
      parts.push_back({local_peers_->memory(index) + offset, &local_peers_->bell(index),
                       local_peers_->heap(index), local_peers_->other_process(index)});
    return parts;
  };
  shm_transport_.emplace(parts_at(memory.rings), local_peers_->index(), ranks_of_host_);
  transport_.use_memory(*shm_transport_, ranks_of_host_, all_are_local_peers_);
  shm_backend_.emplace(ranks_of_host_, parts_at(memory.backend), local_peers_->index(),
                       backend::ShmBackend::default_piece_bytes, memory.slot_bytes,
                       local_peers_->cache_share(),
                       backend::shm::NumaNodes{.of_ranks = local_peers_->numa_nodes()});
  backend_.use_memory(*shm_backend_);
  if (!all_are_local_peers_) return;
  std::vector<SharedPlanBoard::Peer> places;
  places.reserve(static_cast<std::size_t>(local_peers_->size()));
  for (int index = 0; index < local_peers_->size(); ++index)
    places.push_back(
        {reinterpret_cast<SharedPlanBoard::Word*>(local_peers_->memory(index) + memory.board),
         &local_peers_->bell(index)});
  board_.emplace(std::move(places), local_peers_->index());
}

const node::Doorbell& CpuLinks::bell() const {
  return local_peers_ == nullptr ? *own_bell_ : local_peers_->own_bell();
}

std::shared_ptr<node::SharedHeap> CpuLinks::heap() const {
  return local_peers_ == nullptr ? nullptr : local_peers_->own_heap();
}

std::string CpuLinks::data_path() const {
  if (all_are_local_peers_ || messenger_ == nullptr) return "shm";
  return (local_peers_ == nullptr ? "" : "shm+") + std::string(messenger_->name());
}

std::vector<StatusBoard::Seat> CpuLinks::seats() const {
  std::vector<StatusBoard::Seat> seats;
  if (local_peers_ == nullptr) return seats;
  for (int index = 0; index < local_peers_->size(); ++index)
    seats.push_back(
        {ranks_of_host_[static_cast<std::size_t>(index)], local_peers_->process(index),
         reinterpret_cast<node::StatusPage*>(local_peers_->memory(index) + status_offset_),
         &local_peers_->bell(index)});
  return seats;
}

std::vector<node::FileDescriptor> CpuLinks::other_processes() const {
  return local_peers_ == nullptr ? std::vector<node::FileDescriptor>{} : local_peers_->others();
}

void CpuLinks::abandon() {
  abandoned_ = true;
  // The messenger's descriptors are not read any more. If one stayed readable, it would end every
  // sleep at once.
  if (network_.valid())
    for (const int descriptor : of_messenger_)
      ::epoll_ctl(network_.get(), EPOLL_CTL_DEL, descriptor, nullptr);
  if (mpi_ != nullptr) mpi_->leak();
  if (sockets_ != nullptr) sockets_->abandon();
}

std::vector<int> CpuLinks::lost_ranks() const {
  std::vector<int> lost;
  if (local_peers_ == nullptr) return lost;
  for (const int index : local_peers_->ended())
    lost.push_back(ranks_of_host_[static_cast<std::size_t>(index)]);
  return lost;
}

}  // namespace kolo::internal::session
