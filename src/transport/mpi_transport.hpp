// Control messages over MPI point-to-point.
#pragma once

#include <mpi.h>

#include <array>
#include <cstddef>
#include <deque>
#include <vector>

#include "transport/transport.hpp"

namespace kolo::transport {

class MpiTransport : public Transport {
 public:
  /// `comm` carries nothing else, returns errors (MPI_ERRORS_RETURN) and outlives this.
  explicit MpiTransport(MPI_Comm comm) : comm_(comm) {}
  /// Messages still on their way are given up: their memory is leaked, since MPI may yet use it.
  ~MpiTransport() override;
  MpiTransport(const MpiTransport&) = delete;
  MpiTransport& operator=(const MpiTransport&) = delete;

  void send(int peer, Message message) override;
  bool poll(const Receiver& receive) override;
  [[nodiscard]] bool flushed() const override { return sends_.empty(); }

 private:
  struct Arriving {
    int peer;
    Message message;
    MPI_Request request;
  };

  // No larger than what every kind of network sends at once, so that receiving it cannot wait.
  static constexpr std::size_t small_bytes = 1024;

  bool finish_sends();
  bool match_one(const Receiver& receive);
  bool hand_over_arrived(const Receiver& receive);

  MPI_Comm comm_;
  std::vector<MPI_Request> sends_;
  std::vector<Message> sent_;      // what the sends read
  std::vector<int> finished_;      // indices, reused
  std::deque<Arriving> arriving_;  // in the order in which they were matched
  alignas(std::max_align_t) std::array<std::byte, small_bytes> small_;  // read in place
};

}  // namespace kolo::transport
