// SPDX-License-Identifier: Apache-2.0
// Control messages over MPI point-to-point.
#pragma once

#include <mpi.h>

#include <array>
#include <cstddef>
#include <deque>
#include <unordered_map>
#include <vector>

#include "transport/transport.hpp"

namespace kolo::internal::transport {

class MpiTransport : public Transport {
 public:
  /// `comm` carries nothing else, returns errors (MPI_ERRORS_RETURN) and outlives this. About
  /// `max_unsent` bytes wait for a rank, and as many have come to this one and are not whole yet.
  explicit MpiTransport(MPI_Comm comm, std::size_t max_unsent = max_unsent_bytes)
      : comm_(comm), max_unsent_(max_unsent) {}
  /// Messages still on their way are given up: their memory is leaked, since MPI may yet use it.
  ~MpiTransport() override;
  MpiTransport& operator=(MpiTransport&&) = delete;

  void send(int peer, Message message) override;
  bool poll(const Receiver& receive) override;
  [[nodiscard]] bool flushed() const override;

 private:
  struct Arriving {
    int peer;
    Message message;
    MPI_Request request;
  };

  /// MPI takes short messages to itself, without bound, and calls them sent. So now and then a
  /// message is sent that counts as sent only when its receiver has it, and with it all before it.
  struct Backlog {
    std::size_t bytes = 0;  // that the receiver may not have
    std::size_t later = 0;  // those after the last such message
    bool awaited = false;   // that message is on its way
  };
  struct Sent {
    Message message;
    Backlog* confirms;  // null: it confirms nothing
  };

  // No larger than what every kind of network sends at once, so that receiving it cannot wait.
  static constexpr std::size_t small_bytes = 1024;

  bool finish_sends();
  static void confirm(Backlog* backlog);
  bool match_one(const Receiver& receive);
  bool hand_over_arrived(const Receiver& receive);

  MPI_Comm comm_;
  std::size_t max_unsent_;
  std::unordered_map<int, Backlog> backlogs_{};  // by receiver
  std::vector<MPI_Request> sends_;
  std::vector<Sent> sent_;         // what the sends read
  std::vector<int> finished_;      // indices, reused
  std::deque<Arriving> arriving_;  // in the order in which they were matched
  std::size_t arriving_bytes_ = 0;
  alignas(std::max_align_t) std::array<std::byte, small_bytes> small_;  // read in place
};

}  // namespace kolo::internal::transport
