// SPDX-License-Identifier: Apache-2.0
// Chooses what carries a control message between CPUs.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "messenger/messenger.hpp"
#include "transport/socket_transport.hpp"

namespace kolo::internal::session {

/// Shared memory to ranks of this host; to others sockets, or MPI where there are no sockets. Lets
/// the messenger move, which carries the data.
class CpuTransport : public transport::Transport {
 public:
  /// Each of them may be null, and outlives this.
  CpuTransport(Transport* mpi, transport::SocketTransport* sockets, messenger::Messenger* messenger)
      : messenger_(messenger), mpi_(mpi), network_(sockets == nullptr ? mpi : sockets) {}

  /// `ranks`: those reached through `memory`, ascending; `all`: there are no others.
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
  /// Control messages may tell why a peer's data connection has ended, so they come first.
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
