// SPDX-License-Identifier: Apache-2.0
// The links for control messages and data between CPUs: through shared memory where ranks share it,
// otherwise over the network.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "backend/router/router.hpp"
#include "backend/shm/shm_backend.hpp"
#include "messenger/messenger.hpp"
#include "node/local_group.hpp"
#include "session/engine/links.hpp"
#include "session/engine/shared_board.hpp"
#include "session/startup/start.hpp"
#include "session/topology.hpp"
#include "transport/control/socket_transport.hpp"
#include "transport/shm_transport.hpp"

namespace kolo::internal::session {

/// The layout of the memory that each rank shares with its host, as offsets in bytes. The same on
/// all ranks of a host.
struct HostMemory {
  std::size_t rings = 0;    // the transport's rings
  std::size_t backend;      // the backend's part
  std::size_t board;        // the word of the plan board
  std::size_t status;       // the status page
  std::size_t bytes;        // the total
  std::int64_t slot_bytes;  // the length of the backend's slots
};

[[nodiscard]] HostMemory lay_out_memory(bool several_hosts);

/// Sends through shared memory to ranks of this host, and over sockets, or else MPI, to the others.
/// `poll` also drives the messenger, which carries data and has no thread of its own.
class CpuTransport : public transport::Transport {
 public:
  /// Each of the objects may be null. They outlive the transport.
  CpuTransport(Transport* mpi, transport::SocketTransport* sockets, messenger::Messenger* messenger)
      : messenger_(messenger), mpi_(mpi), network_(sockets == nullptr ? mpi : sockets) {}

  /// `ranks`: the ranks reached through `memory`, ascending. `all`: there are no other ranks.
  void use_memory(Transport& memory, std::vector<int> ranks, bool all) {
    memory_ = &memory;
    ranks_in_memory_ = std::move(ranks);
    network_ = all ? nullptr : network_;
  }

  void send(int peer, transport::Message message) override {
    Transport* const way = std::ranges::binary_search(ranks_in_memory_, peer) ? memory_ : network_;
    way->send(peer, std::move(message));
  }

  void set_time(std::chrono::steady_clock::time_point now,
                std::chrono::nanoseconds pause) override {
    if (network_ != nullptr) network_->set_time(now, pause);
  }

  bool poll(const Receiver& receive) override {
    bool moved = messenger_ != nullptr && messenger_->progress();
    if (memory_ != nullptr) moved |= memory_->poll(receive);
    if (network_ != nullptr) moved |= network_->poll(receive);
    return moved;
  }

  [[nodiscard]] bool flushed() const override {
    return (memory_ == nullptr || memory_->flushed()) &&
           (network_ == nullptr || network_->flushed());
  }
  /// The loss on the control connection comes first, because it has the better reason if both
  /// connections of a peer have ended.
  [[nodiscard]] const Failure* loss() const override {
    const Failure* const loss = network_ == nullptr ? nullptr : network_->loss();
    return loss != nullptr || messenger_ == nullptr ? loss : messenger_->loss();
  }

  /// True while messages or data may arrive without a ring.
  [[nodiscard]] bool must_poll() const {
    return (network_ != nullptr && network_ == mpi_) ||
           (messenger_ != nullptr && !messenger_->may_sleep());
  }

 private:
  messenger::Messenger* messenger_;
  Transport* mpi_;
  Transport* network_;
  Transport* memory_ = nullptr;
  std::vector<int> ranks_in_memory_{};
};

/// Calls MPI as little as possible, because MPI has to be polled. If all ranks share memory, only
/// Adasum calls it. With sockets between hosts, MPI carries only data, or nothing if connections of
/// Kolo's own carry the data. Without sockets, MPI also carries control messages and is polled.
class CpuLinks : public Links {
 public:
  /// `mpi`: null in a session without MPI; `sockets` are then needed unless all ranks share memory.
  /// `data`: carries data; null: MPI does. If both are null, all ranks must share memory.
  /// `local_peers`: null, on all ranks of the host alike, if the host shares no memory. `sockets`
  /// and `data` are null on all ranks or on none. `sharing_node_of`: for each rank, the lowest
  /// rank that shares memory with it, which may be the rank itself.
  CpuLinks(std::unique_ptr<OverMpi> mpi, std::unique_ptr<messenger::Messenger> data,
           const Topology& topology, std::unique_ptr<node::LocalGroup> local_peers,
           std::unique_ptr<transport::SocketTransport> sockets,
           const std::vector<int>& sharing_node_of);
  /// Says goodbye to the other hosts, and waits a short time for their goodbyes.
  ~CpuLinks() override;

  [[nodiscard]] transport::Transport& transport() override { return transport_; }
  [[nodiscard]] backend::Backend& backend() override { return backend_; }
  [[nodiscard]] const node::Doorbell& bell() const override;
  [[nodiscard]] bool must_poll() const override { return transport_.must_poll(); }
  [[nodiscard]] bool has_processor_to_poll() const override { return has_processor_to_poll_; }
  [[nodiscard]] negotiation::PlanBoard* board() override { return board_ ? &*board_ : nullptr; }
  [[nodiscard]] std::string data_path() const override;
  [[nodiscard]] std::shared_ptr<node::SharedHeap> heap() const override;
  [[nodiscard]] std::vector<StatusBoard::Seat> seats() const override;
  [[nodiscard]] std::vector<node::FileDescriptor> other_processes() const override;
  [[nodiscard]] bool mpi_has_batches() override {
    return messenger_ != nullptr && !has_data_connections_ && messenger_->uses_memory();
  }
  void abandon() override;
  [[nodiscard]] std::vector<int> lost_ranks() const override;
  [[nodiscard]] std::optional<Failure> interruption() const override {
    return find_interruption_ ? find_interruption_() : std::nullopt;
  }
  void report_awaited(const RankSet& awaited, const std::string& reason) override {
    if (report_awaited_) report_awaited_(awaited, reason);
  }
  void report_missed(const RankSet& ranks, const std::string& operation) override {
    if (report_missed_) report_missed_(ranks, operation);
  }
  using Report = std::function<void(const RankSet&, const std::string&)>;
  /// Sets the callbacks for the server of a job. `find_interruption` must not block. Call it before
  /// the session starts.
  void watch(std::function<std::optional<Failure>()> find_interruption, Report report_awaited,
             Report report_missed) {
    find_interruption_ = std::move(find_interruption);
    report_awaited_ = std::move(report_awaited);
    report_missed_ = std::move(report_missed);
  }

 private:
  struct alignas(64) CacheLine {
    std::array<std::byte, 64> bytes{};
  };

  void watch_network();
  void share_memory();
  void use_private_memory(int rank);

  std::unique_ptr<OverMpi> mpi_;  // null: the session does not use MPI
  std::unique_ptr<node::LocalGroup> local_peers_;
  std::unique_ptr<transport::SocketTransport> sockets_;
  bool has_data_connections_;
  std::unique_ptr<messenger::Messenger> messenger_;  // null: all ranks share memory
  node::FileDescriptor network_{};   // epoll descriptor of sockets and messenger, if several
  std::vector<int> of_messenger_{};  // the messenger's descriptors that are watched
  bool all_are_local_peers_;
  bool abandoned_ = false;
  std::vector<int> ranks_of_host_;
  bool has_processor_to_poll_;
  std::size_t status_offset_ = 0;  // the offset of the status page in each peer's memory
  // The next three replace the shared memory's bell and memory on a host that shares none.
  node::BellWord own_word_{};
  std::optional<node::Doorbell> own_bell_{};
  std::vector<CacheLine> own_memory_{};
  std::optional<transport::ShmTransport> shm_transport_{};
  std::optional<backend::ShmBackend> shm_backend_{};
  std::optional<SharedPlanBoard> board_{};  // only if all ranks share memory
  std::function<std::optional<Failure>()> find_interruption_{};
  Report report_awaited_{};
  Report report_missed_{};
  CpuTransport transport_;
  backend::CpuRouter backend_;
};

}  // namespace kolo::internal::session
