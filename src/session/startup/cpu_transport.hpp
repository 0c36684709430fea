// SPDX-License-Identifier: Apache-2.0
// The transport of control messages between CPUs, which chooses a path for each peer.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "messenger/messenger.hpp"
#include "transport/socket_transport.hpp"

namespace kolo::internal::session {

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

}  // namespace kolo::internal::session
