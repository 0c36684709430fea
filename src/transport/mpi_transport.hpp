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

/// Probes for each message before receiving it, since the lengths of messages are unknown. Not
/// thread-safe.
class MpiTransport : public Transport {
 public:
  /// `comm` carries no other messages, returns errors (MPI_ERRORS_RETURN) and outlives this object.
  /// `max_unsent` bounds the bytes that wait for each rank, and also, approximately, the bytes of
  /// messages that are arriving at this rank.
  explicit MpiTransport(MPI_Comm comm, std::size_t max_unsent = max_unsent_bytes)
      : comm_(comm), max_unsent_(max_unsent) {}
  /// Abandons messages that are under way and leaks their memory, since MPI may still use it.
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

  /// The bytes that a receiver may not have yet. MPI buffers short messages without bound and
  /// reports them as sent, so completed sends say nothing about the receiver. Now and then a
  /// message is therefore sent synchronously (MPI_Issend): its completion confirms that the
  /// receiver has matched it, and all earlier messages too.
  struct Backlog {
    std::size_t bytes = 0;  // all bytes that are not confirmed
    std::size_t later = 0;  // bytes sent after the last confirming message
    bool awaited = false;   // a confirming message is under way
  };
  struct Sent {
    Message message;
    Backlog* confirms;  // null: not a confirming message
  };

  // At most the eager limit of every kind of network, so that a blocking receive of a matched
  // message returns at once.
  static constexpr std::size_t small_bytes = 1024;

  bool finish_sends();
  static void confirm(Backlog* backlog);
  bool match_one(const Receiver& receive);
  bool hand_over_arrived(const Receiver& receive);

  MPI_Comm comm_;
  std::size_t max_unsent_;
  std::unordered_map<int, Backlog> backlogs_{};  // by receiver
  std::vector<MPI_Request> sends_;
  std::vector<Sent> sent_;         // the messages that `sends_` read, at the same indices
  std::vector<int> finished_;      // indices of finished sends; a member only to reuse its memory
  std::deque<Arriving> arriving_;  // in the order in which the messages were matched
  std::size_t arriving_bytes_ = 0;
  alignas(std::max_align_t) std::array<std::byte, small_bytes> small_;  // read in place
};

}  // namespace kolo::internal::transport
