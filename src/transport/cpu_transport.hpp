// SPDX-License-Identifier: Apache-2.0
// Which transport carries a control message between CPUs.
#pragma once

#include <mpi.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "transport/mpi_transport.hpp"
#include "transport/socket_transport.hpp"

namespace kolo::internal::transport {

/// Shared memory to ranks of this host; to others sockets, or MPI where there are no sockets.
class CpuTransport : public Transport {
 public:
  /// `sockets` may be null. `control` carries nothing else. Both outlive this.
  CpuTransport(MPI_Comm control, SocketTransport* sockets)
      : control_(control),
        sockets_(sockets),
        mpi_(control),
        activity_(sockets == nullptr ? std::chrono::nanoseconds(0) : sockets->peer_timeout()) {}

  /// `ranks`: those reached through `memory`, ascending; `all`: there are no others.
  void use_memory(Transport& memory, std::vector<int> ranks, bool all) {
    memory_ = &memory;
    ranks_in_memory_ = std::move(ranks);
    network_ = all ? nullptr : network_;
  }

  void send(int peer, Message message) override {
    Transport* const way = std::ranges::binary_search(ranks_in_memory_, peer) ? memory_ : network_;
    way->send(peer, std::move(message));
  }

  bool poll(const Receiver& receive) override {
    // Where MPI carries no control messages, only this call lets it send what a batch has left.
    if (network_ != &mpi_) activity_.call_if_due(control_);
    bool moved = memory_ != nullptr && memory_->poll(receive);
    if (network_ != nullptr) moved |= network_->poll(receive);
    return moved;
  }

  [[nodiscard]] bool flushed() const override {
    return (memory_ == nullptr || memory_->flushed()) &&
           (network_ == nullptr || network_->flushed());
  }
  [[nodiscard]] const Failure* loss() const override {
    return network_ == nullptr ? nullptr : network_->loss();
  }

  /// True while messages may arrive without a ring.
  [[nodiscard]] bool must_poll() const { return network_ == &mpi_ || activity_.lively(); }

  /// Observes the batches that are executed over MPI.
  [[nodiscard]] MpiActivity& mpi_activity() { return activity_; }

 private:
  MPI_Comm control_;
  SocketTransport* sockets_;
  MpiTransport mpi_;
  MpiActivity activity_;
  Transport* network_ = sockets_ == nullptr ? static_cast<Transport*>(&mpi_) : sockets_;
  Transport* memory_ = nullptr;
  std::vector<int> ranks_in_memory_{};
};

}  // namespace kolo::internal::transport
