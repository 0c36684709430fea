// SPDX-License-Identifier: Apache-2.0
#include "session/startup/cpu_links.hpp"

#include <chrono>
#include <utility>

#include "session/startup/host_memory.hpp"

namespace kolo::internal::session {
namespace {

// All ranks end their sessions at about the same time.
constexpr std::chrono::seconds patience_to_close{1};
constexpr std::chrono::milliseconds patience_after_failure{100};

bool some_share(const std::vector<int>& sharing_node_of) {
  for (std::size_t rank = 0; rank < sharing_node_of.size(); ++rank)
    if (sharing_node_of[rank] != static_cast<int>(rank)) return true;
  return false;
}

}  // namespace

CpuLinks::CpuLinks(std::optional<DataOverMpi> mpi, const Topology& topology,
                   std::unique_ptr<node::LocalGroup> neighbors,
                   std::unique_ptr<transport::SocketTransport> sockets,
                   const std::vector<int>& sharing_node_of)
    : mpi_(std::move(mpi)),
      neighbors_(std::move(neighbors)),
      sockets_(std::move(sockets)),
      all_are_neighbors_(neighbors_ != nullptr && topology.local_size == topology.size),
      ranks_of_host_(ranks_of_host(topology, topology.rank)) {
  if (neighbors_ != nullptr) {
    share_memory();
    if (sockets_ != nullptr) neighbors_->watch(sockets_->descriptor());
  } else {
    own_bell_.emplace(own_word_, node::Doorbell::open());
    if (sockets_ != nullptr) own_bell_->watch(sockets_->descriptor());
    if (some_share(sharing_node_of)) use_private_memory(topology.rank);
  }
  if (!all_are_neighbors_ && some_share(sharing_node_of))
    backend_.use_memory_everywhere(sharing_node_of);
}

CpuLinks::~CpuLinks() {
  if (sockets_ != nullptr) sockets_->close(abandoned_ ? patience_after_failure : patience_to_close);
}

// Takes part in the allreduces of hosts that share memory, as a host of one rank.
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
  const HostMemory memory = lay_out_memory(!all_are_neighbors_);
  status_offset_ = memory.status;
  const auto parts_at = [&](std::size_t offset) {
    std::vector<node::LocalPeer> parts;
    for (int index = 0; index < neighbors_->size(); ++index)
      parts.push_back({neighbors_->memory(index) + offset, &neighbors_->bell(index),
                       neighbors_->heap(index), neighbors_->other_process(index)});
    return parts;
  };
  shm_transport_.emplace(parts_at(memory.rings), neighbors_->index(), ranks_of_host_);
  transport_.use_memory(*shm_transport_, ranks_of_host_, all_are_neighbors_);
  shm_backend_.emplace(
      ranks_of_host_, parts_at(memory.backend), neighbors_->index(),
      backend::ShmBackend::default_piece_bytes, memory.slot_bytes,
      backend::shm::HostTraits{neighbors_->cache_share(), &neighbors_->accessible_for()});
  backend_.use_memory(*shm_backend_);
  if (!all_are_neighbors_) return;
  std::vector<SharedPlanBoard::Peer> places;
  for (int index = 0; index < neighbors_->size(); ++index)
    places.push_back(
        {reinterpret_cast<SharedPlanBoard::Word*>(neighbors_->memory(index) + memory.board),
         &neighbors_->bell(index)});
  board_.emplace(std::move(places), neighbors_->index());
}

const node::Doorbell& CpuLinks::bell() const {
  return neighbors_ == nullptr ? *own_bell_ : neighbors_->own_bell();
}

std::shared_ptr<node::SharedHeap> CpuLinks::heap() const {
  return neighbors_ == nullptr ? nullptr : neighbors_->own_heap();
}

std::string CpuLinks::data_path() const {
  if (neighbors_ == nullptr) return "mpi";
  return all_are_neighbors_ ? "shm" : "shm+mpi";
}

std::vector<StatusBoard::Seat> CpuLinks::seats() const {
  std::vector<StatusBoard::Seat> seats;
  if (neighbors_ == nullptr) return seats;
  for (int index = 0; index < neighbors_->size(); ++index)
    seats.push_back(
        {ranks_of_host_[static_cast<std::size_t>(index)], neighbors_->process(index),
         reinterpret_cast<node::StatusPage*>(neighbors_->memory(index) + status_offset_),
         &neighbors_->bell(index)});
  return seats;
}

std::vector<node::FileDescriptor> CpuLinks::other_processes() const {
  return neighbors_ == nullptr ? std::vector<node::FileDescriptor>{} : neighbors_->others();
}

void CpuLinks::abandon() {
  abandoned_ = true;
  if (mpi_) mpi_->control.leak();
  if (mpi_) mpi_->data.leak();
  if (sockets_ != nullptr) sockets_->abandon();
}

std::vector<int> CpuLinks::lost_ranks() const {
  std::vector<int> lost;
  if (neighbors_ == nullptr) return lost;
  for (const int index : neighbors_->ended())
    lost.push_back(ranks_of_host_[static_cast<std::size_t>(index)]);
  return lost;
}

}  // namespace kolo::internal::session
