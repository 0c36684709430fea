// SPDX-License-Identifier: Apache-2.0
// The rendezvous of ranks over MPI, and an owner of MPI communicators.
#pragma once

#include <mpi.h>

#include <span>
#include <utility>
#include <vector>

#include "rendezvous/rendezvous.hpp"

namespace kolo::internal::session {

/// The communicator that the program has passed to `init`.
struct GivenCommunicator {
  MPI_Comm comm;
};

/// Owns an MPI communicator that returns errors instead of ending the process.
class Communicator {
 public:
  /// Takes over `comm`.
  explicit Communicator(MPI_Comm comm);
  static Communicator duplicate(MPI_Comm comm);
  Communicator(Communicator&& other) noexcept : comm_(std::exchange(other.comm_, MPI_COMM_NULL)) {}
  ~Communicator();

  [[nodiscard]] MPI_Comm get() const { return comm_; }
  /// Gives up the communicator without freeing it, because requests on it may never complete.
  void leak() { comm_ = MPI_COMM_NULL; }

 private:
  MPI_Comm comm_;
};

/// The rendezvous of the ranks of a communicator. MPI does not notice a lost rank, so a call waits
/// for it forever.
class MpiRendezvous : public rendezvous::Rendezvous {
 public:
  /// Collective over the ranks of `comm`, or over all ranks if it is MPI_COMM_NULL. Throws
  /// InvalidArgument for an intercommunicator.
  explicit MpiRendezvous(MPI_Comm comm);

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return size_; }
  [[nodiscard]] std::vector<rendezvous::Bytes> gather_all(std::span<const std::byte> mine) override;
  [[nodiscard]] std::vector<int> ranks_of_machine() override;
  /// Calls MPI, so that it can send pending messages that other ranks wait for.
  void check() override;
  void settle() override;

  /// A new communicator of the same ranks. Collective.
  [[nodiscard]] Communicator duplicate() const { return Communicator::duplicate(world_.get()); }

 private:
  Communicator world_;
  int rank_ = 0;
  int size_ = 1;
};

}  // namespace kolo::internal::session
